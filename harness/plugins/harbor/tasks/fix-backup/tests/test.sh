#!/bin/sh
# Copies a folder with ordinary and odd names, and compares the result.
reward=/logs/verifier/reward.txt
echo 0 > "$reward"
work=$(mktemp -d)
mkdir -p "$work/from/a folder/deep"
echo one > "$work/from/plain"
echo two > "$work/from/two words"
echo three > "$work/from/a folder/deep/ends in space "
cd "$work" || exit 1
sh /app/backup.sh "$work/from" "$work/new folder" || exit 1
found=$(cd "$work/new folder" && find . -type f | sort)
wanted="./a folder/deep/ends in space .bak
./plain.bak
./two words.bak"
if [ "$found" != "$wanted" ]; then
  echo "found:"; echo "$found"
  exit 1
fi
[ "$(cat "$work/new folder/two words.bak")" = two ] || exit 1
[ "$(cat "$work/from/two words")" = two ] || exit 1
echo 1 > "$reward"
