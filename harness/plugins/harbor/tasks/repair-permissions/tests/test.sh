#!/bin/sh
# Compares the permissions of all files and folders.
wanted="644 ./public/index.html
644 ./tools/README
700 ./private
700 ./private/keys
700 ./private/rotate.sh
600 ./private/keys/server.key
755 .
755 ./public
755 ./tools
755 ./tools/start.sh"
echo 0 > /logs/verifier/reward.txt
found=$(cd /app && find . -exec stat -c '%a %n' {} +)
if [ "$(echo "$found" | sort)" != "$(echo "$wanted" | sort)" ]; then
  echo "$found"
  exit 1
fi
[ "$(cat /app/private/keys/server.key)" = "not a real key" ] && echo 1 > /logs/verifier/reward.txt
