#!/bin/sh
# Other numbers than those of check.sh, and wrong arguments.
right=0 total=0
for pair in 1:I 3:III 5:V 8:VIII 49:XLIX 444:CDXLIV 621:DCXXI 944:CMXLIV 1000:M 2026:MMXXVI 3888:MMMDCCCLXXXVIII 3999:MMMCMXCIX; do
  total=$((total + 1))
  if [ "$(timeout 5 sh /app/roman.sh "${pair%:*}")" = "${pair#*:}" ]; then
    right=$((right + 1))
  else
    echo "${pair%:*} should be ${pair#*:}"
  fi
done
for wrong in 0 4000 ten -3 2.5; do
  total=$((total + 1))
  found=$(timeout 5 sh /app/roman.sh "$wrong" 2>/dev/null)
  if [ $? = 2 ] && [ -z "$found" ]; then
    right=$((right + 1))
  else
    echo "$wrong should be refused"
  fi
done
reward=0
if [ "$right" = "$total" ]; then
  reward=1
fi
echo "{\"reward\": $reward, \"right\": $right}" > /logs/verifier/reward.json
