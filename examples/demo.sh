#!/bin/sh
# The whole way on the sample data, offline: check, train two families, put them side by side, predict. `make demo` runs it.
# DEMO_SETTINGS="training.epochs=1" and the like make the second training another one.
# Only runs stand in runs/; what else is written goes to demo/.
set -eu
cd "$(dirname "$0")/.."
mkdir -p demo

step() {
    printf '\n\033[1m$ %s\033[0m\n' "$1"
    eval "$1"
}

step 'tagline check examples/support/messages.csv'
step 'tagline train examples/support/messages.csv model.family=linear --json > demo/linear.json'
step "tagline train examples/support/messages.csv${DEMO_SETTINGS:+ $DEMO_SETTINGS}"
step 'tagline runs list'
step 'tagline compare $(ls runs | tail -n 2)'
step 'tagline runs report last'
step 'tagline predict last "the app logs me out every five minutes" "Parcel says delivered but nothing is here"'
step 'tagline predict last --input examples/support/new-messages.csv --output demo/new-messages.csv'
step 'head -n 4 demo/new-messages.csv'
printf '\nThat was the whole way. README.md goes through it slowly; tagline init FILE starts with your own data.\n'
