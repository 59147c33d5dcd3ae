#!/bin/sh
# Compares the file with the expected one.
wanted="store,3
archive,1
mail,1
web,1"
if [ "$(cat /app/errors.csv)" = "$wanted" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo "expected:"; echo "$wanted"
  echo 0 > /logs/verifier/reward.txt
fi
