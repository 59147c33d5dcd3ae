#!/bin/sh
# Print a number in Roman numerals.
rest=$1
for pair in 1000:M 500:D 100:C 50:L 10:X 9:IX 5:V 1:I; do
  while [ "$rest" -gt "${pair%:*}" ]; do
    printf %s "${pair#*:}"
    rest=$((rest - ${pair%:*}))
  done
done
echo
