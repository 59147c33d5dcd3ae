#!/bin/sh
awk 'NF >= 3 && toupper($2) == "ERROR" { count[$3]++ } END { for (name in count) print name "," count[name] }' \
  /app/logs/*.log | sort -t, -k2,2nr -k1,1 > /app/errors.csv
