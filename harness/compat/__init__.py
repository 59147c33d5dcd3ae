"""The classic `verifiers` API: packages that were written for it run here unmodified. Owns the answer to their imports
(`imports`), their generation (`generation`), our own version of the API (`verifiers`) and model clients in the shape
they expect (`openai_client`)."""
