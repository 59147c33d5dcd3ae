#!/bin/sh
cat > /app/roman.sh <<'SCRIPT'
#!/bin/sh
# Print a number in Roman numerals.
case $1 in
  '' | *[!0-9]* | 0* | ?????*) exit 2 ;;
esac
[ "$1" -le 3999 ] || exit 2
rest=$1
for pair in 1000:M 900:CM 500:D 400:CD 100:C 90:XC 50:L 40:XL 10:X 9:IX 5:V 4:IV 1:I; do
  while [ "$rest" -ge "${pair%:*}" ]; do
    printf %s "${pair#*:}"
    rest=$((rest - ${pair%:*}))
  done
done
echo
SCRIPT
