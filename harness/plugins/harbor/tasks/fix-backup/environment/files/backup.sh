#!/bin/sh
# Copy all files of a folder; adds .bak to their names.
cd $1
for file in $(find . -type f); do
  cp $file $2/$file.bak
done
