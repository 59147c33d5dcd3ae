#!/bin/sh
cat > /app/backup.sh <<'SCRIPT'
#!/bin/sh
# Copy all files of a folder; adds .bak to their names.
set -e
mkdir -p "$2"
target=$(cd "$2" && pwd)
cd "$1"
find . -type f -exec sh -c '
  target=$1
  shift
  for file; do
    mkdir -p "$target/${file%/*}"
    cp "$file" "$target/$file.bak"
  done
' sh "$target" {} +
SCRIPT
