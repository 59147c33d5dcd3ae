# An image that runs `bench`:
#
#     docker build -t bench .
#     docker run --rm -v "$PWD:/work" -e OPENAI_API_KEY bench run gsm8k -n 10 -m gpt-4.1-mini
#
# podman takes the same arguments.
ARG BASE=docker.io/library/python:3.12-slim
FROM ${BASE}
# Further arguments of pip, such as --no-index --find-links /src/wheels.
ARG PIP_ARGS=""
COPY . /src
RUN python3 -m venv /opt/bench \
 && /opt/bench/bin/pip install --no-cache-dir --no-compile -c /src/constraints.txt ${PIP_ARGS} /src \
 && rm -rf /src \
 && useradd --create-home bench \
 && mkdir /work && chown bench /work
ENV PATH=/opt/bench/bin:$PATH
USER bench
WORKDIR /work
ENTRYPOINT ["bench"]
CMD ["--help"]
