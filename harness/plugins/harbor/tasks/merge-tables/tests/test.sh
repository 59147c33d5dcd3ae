#!/bin/sh
# Gives half of the reward for the right lines in another order; all for the right file.
wanted="id,name,total
1,Ana,7
2,Omar,42
7,Wen,0
10,Ida,10"
found=$(cat /app/totals.csv)
same_lines=0 reward=0
if [ "$(echo "$found" | sort)" = "$(echo "$wanted" | sort)" ]; then
  same_lines=1 reward=0.5
fi
if [ "$found" = "$wanted" ]; then
  reward=1
fi
echo "{\"reward\": $reward, \"same_lines\": $same_lines}" > /logs/verifier/reward.json
