#!/bin/sh
# Makes stores/: the directories of demos that were stopped in the middle of their task,
# by the program of the version before; see make.sh for how to build it:
#
#	sh stores.sh OLD/riffle-before
#
# Each time they are others: keys are random. They are not to be made anew.
set -eu
riffle=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$here/stores"
mkdir -p "$here/stores"
cd "$work"
century=876000h

# until_round LEAST ARGS...: runs a demo and interrupts it when so many rounds are over.
until_round() {
	least=$1
	shift
	"$riffle" demo "$@" >log 2>&1 &
	pid=$!
	until [ "$(sed -n 's|^riffle: round \([0-9]*\)/.*|\1|p' log | tail -n 1)0" -ge "${least}0" ]; do
		kill -0 $pid
		sleep 0.02
	done
	kill -INT $pid
	wait $pid || [ $? = 130 ]
}

# renew DIR ROLE SUITE replaces a sealing key and a certificate, which a demo makes
# for a month and a year, by ones for a century.
renew() {
	keys=$1/$2/keys
	"$riffle" keygen "$2" --sealing-only --suite "$3" --expires $century --out "$keys" --quiet >/dev/null
	was=$(cat "$keys/tls.pin")
	rm "$keys/tls.crt" "$keys/tls.key" "$keys/tls.pin"
	"$riffle" keygen tls --host 127.0.0.1 --host localhost --expires $century --out "$keys" --quiet >/dev/null
	sed -i "s|$was|$(cat "$keys/tls.pin")|" "$1"/*/*.yaml
	old=$(sed -n 's|^    - keys/\(sealing-.*\)\.key$|\1|p' "$1/$2/$2.yaml")
	for new in "$keys"/sealing-*.key; do
		new=$(basename "$new" .key)
		if [ "$new" != "$old" ]; then
			sed -i "s|^    - keys/$old.key|    - keys/$new.key\n&|" "$1/$2/$2.yaml"
			sed -i "s|^    - $(cat "$keys/$old.pub")|    - $(cat "$keys/$new.pub")\n&|" "$1/shuffler/shuffler.yaml"
		fi
	done
}

# stopped NAME ROUND SUITE ROLES ARGS...: a demo that is stopped after a round.
stopped() {
	name=$1 round=$2 suite=$3 roles=$4
	shift 4
	until_round 1 --data mnist --clients 12 --processes 2 --suite "$suite" --out "$name" "$@"
	for role in $roles; do
		renew "$name" "$role" "$suite"
	done
	for clients in "$name"/clients-*; do
		cat "$name/shuffler/keys/tls.crt" "$name/coordinator/keys/tls.crt" >"$clients/servers.crt"
	done
	until_round "$round" --resume "$name"
	for role in $roles; do
		"$riffle" fsck "$role" --config "$name/$role/$role.yaml" --quiet >/dev/null
	done
	"$riffle" ledger show --config "$name/coordinator/coordinator.yaml" --json >"$here/stores/$name.json"
	rm -rf "$name/logs" "$name"/*/*.sock
	tar -c --sort=name --owner=0 --group=0 --numeric-owner -C "$name" . | gzip -9n >"$here/stores/$name.tar.gz"
}

stopped shuffle 4 x25519 "shuffler coordinator" --participation once --k 4 --rounds 12
stopped vector-sum 2 mlkem768x25519 "shuffler coordinator aggregator" --trust vector-sum --rounds 6
