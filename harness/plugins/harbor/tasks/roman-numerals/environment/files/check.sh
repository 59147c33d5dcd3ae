#!/bin/sh
# Compare some numbers with their numerals.
failed=0
for pair in 2:II 4:IV 9:IX 14:XIV 40:XL 90:XC 400:CD 1999:MCMXCIX; do
  found=$(sh /app/roman.sh "${pair%:*}")
  if [ "$found" != "${pair#*:}" ]; then
    echo "${pair%:*}: expected ${pair#*:}, found $found"
    failed=1
  fi
done
exit $failed
