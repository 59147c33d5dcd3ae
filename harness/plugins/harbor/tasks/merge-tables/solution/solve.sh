#!/bin/sh
cd /app || exit 1
{
  echo id,name,total
  awk -F, 'FNR == 1 { next } NR == FNR { sum[$1] += $2; next } { print $1 "," $2 "," sum[$1] + 0 }' \
    payments.csv people.csv | sort -t, -k1,1n
} > totals.csv
