#!/bin/sh
# Makes what lies beside this file with the program of the version before:
#
#	git worktree add OLD 65ddce9 && (cd OLD && go build -o riffle-before ./cmd/riffle)
#	sh make.sh OLD/riffle-before
#
# images/ is kept as it is: the first 120 and 60 images of MNIST (tiny in
# main_test.go). The stores and everything with keys are new each time.
set -eu
riffle=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf runs printed certificates experiments people.csv targets.csv commands flags
mkdir -p runs printed certificates experiments

# note KIND NAME DIGEST ARGS... writes a line that the test reads.
note() {
	echo "$*" >>commands
}

# train NAME ARGS...: the digest of a run's model.
train() {
	name=$1
	shift
	"$riffle" train "$@" --out "$work/$name" --quiet >/dev/null
	note train "$name" "$(sha256sum <"$work/$name/model.safetensors" | cut -d' ' -f1)" "$@"
}

# half NAME ROUND ARGS...: a run that is interrupted once the checkpoint of a round
# is there, and the digest that the whole run has.
half() {
	name=$1 round=$2
	shift 2
	"$riffle" train "$@" --out "$work/whole-$name" --quiet >/dev/null
	state=runs/$name/checkpoint/state.safetensors
	while :; do
		rm -rf "runs/$name"
		"$riffle" train "$@" --out "runs/$name" --quiet >/dev/null &
		pid=$!
		until { [ -f "$state" ] && [ "$(reached "$state")" -ge "$round" ]; } || ! kill -0 $pid 2>/dev/null; do
			:
		done
		kill -9 $pid 2>/dev/null || true
		wait $pid 2>/dev/null || true
		[ -f "runs/$name/model.safetensors" ] || break # else it was too fast
	done
	find "runs/$name" -name '.state*' -delete # half-written
	note resume "$name" "$(sha256sum <"$work/whole-$name/model.safetensors" | cut -d' ' -f1)" "$@"
}

# reached STATE is the round of a checkpoint.
reached() {
	LC_ALL=C grep -ao '"round":"[0-9]*"' "$1" | tr -dc 0-9
}

# print NAME ARGS...: what a command prints.
print() {
	name=$1
	shift
	"$riffle" "$@" --json >"printed/$name.json" 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
	note print "$name" - "$@"
}

# certify NAME ARGS...: a certificate, and what its check says.
certify() {
	name=$1
	shift
	"$riffle" eps "$@" --certificate "certificates/$name.json" >/dev/null 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
	note certify "$name" - "$@"
	print "verify-$name" eps --verify "certificates/$name.json"
}

# experiment NAME ARGS...: what is recorded of an experiment with one seed.
experiment() {
	name=$1
	shift
	"$riffle" experiment "$name" "$@" --seeds 1 --out "experiments/$name" --quiet >/dev/null
	rm "experiments/$name/lock"
	find "experiments/$name" -name '*.svg' -o -name '*.md' -o -name report.html | xargs rm
	note experiment "$name" - "$@"
}

# flags COMMAND...: a line for a command, with all its flags, and for those below it.
flags() (
	help=$("$riffle" "$@" --help)
	echo "$*" $(echo "$help" | sed -n '/^Flags:/,$s/^ *\(-[a-z], \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p') >>flags
	for below in $(echo "$help" | sed -n '/^Available Commands:/,/^$/s/^  \([a-z0-9-]*\) .*/\1/p'); do
		if [ "$below" != help ]; then
			flags "$@" "$below"
		fi
	done
)

people='--data people.csv --label y --range *=-1..1'
images='--data images'
set -f # * stays

"$riffle" data export --synthetic logistic --n 400 --dim 5 --out people.csv >/dev/null
"$riffle" data export --synthetic absolute --n 300 --dim 3 --out targets.csv >/dev/null

# Every trust, three seeds.
for seed in 1 2 3; do
	for trust in shuffle local vector-sum distributed none; do
		train "$trust-$seed" $people --trust $trust --rounds 8 --seed $seed
	done
done

# Who takes part.
for trust in shuffle vector-sum; do
	train "$trust-sampled" $people --trust $trust --rounds 8 --participation sampled --k 60 --dropout 0.1
	train "$trust-check-in" $people --trust $trust --rounds 8 --participation check-in --gamma 0.3
	train "$trust-once" $people --trust $trust --rounds 10 --participation once --k 64
done
train distributed-check-in $people --trust distributed --rounds 8 --participation check-in --gamma 0.3 --dropout 0.1
train several-each $people --rounds 6 --examples-per-client 4
train bootstrapped $people --rounds 6 --population 1000

# Every randomizer.
for randomizer in privunit r2 rinf rr r1 laplace krr; do
	train "$randomizer" $people --rounds 6 --randomizer $randomizer --eps0 2
done
train coordinate $people --rounds 6 --randomizer rinf --bits 3 --clip-mode coordinate --clip 0.5 --eps0 1.5
train solved $people --rounds 6 --epsilon 1

# Every noise and transport.
train skellam $people --trust vector-sum --rounds 4 --noise skellam
train honest $people --trust vector-sum --rounds 4 --honest 0.5
train shares $people --trust vector-sum --rounds 4 --transport shares
train bits $people --trust vector-sum --rounds 2 --epsilon 4 --population 40 --transport bits
train split-and-mix $people --trust vector-sum --rounds 2 --sigma 2 --epsilon 6 --population 30 --transport split-and-mix
train discrete $people --trust vector-sum --rounds 3 --transport shares --noise discrete-gaussian
train skellam-shares $people --trust distributed --rounds 3 --transport shares --dropout 0.1

# Every optimizer.
train psgd $people --optimizer psgd --trust vector-sum --epsilon 1
train psgd-shuffle $people --optimizer psgd --eps0 2 --k 40
train agd $people --optimizer agd --trust vector-sum --epsilon 1 --participation all --rounds 6
train agd-smooth $people --loss hinge --optimizer agd-smooth --trust vector-sum --epsilon 1 --participation all --rounds 6
train agd-phases $people --lambda 0.05 --optimizer agd-phases --trust vector-sum --epsilon 1
train gd $people --optimizer gd --trust vector-sum --epsilon 1 --rounds 6
train pan-private $people --optimizer pan-private --trust none
train absolute --data targets.csv --label y --loss absolute --range '*=-1..1' --rounds 6
train pinball --data targets.csv --label y --loss pinball:0.3 --range '*=-1..1' --rounds 6

# Every model.
for model in ink-linear shape-linear hog-linear softmax cnn pca-mlp; do
	train "$model" $images --model $model --rounds 3
done
train cnn-sum $images --model cnn --trust vector-sum --rounds 2

# Interrupted.
half shuffle 120 $people --rounds 400 --checkpoint-every 40 --eval-every 80
half vector-sum 120 $people --trust vector-sum --rounds 400 --checkpoint-every 40 --eval-every 80
half once 123 $people --rounds 400 --participation once --k 20 --checkpoint-every 41 --eval-every 80
half sum-once 123 $people --trust vector-sum --rounds 400 --participation once --k 64 --checkpoint-every 41 --eval-every 80
half check-in 120 $people --rounds 400 --participation check-in --gamma 0.3 --dropout 0.1 --checkpoint-every 40 --eval-every 80
half psgd 2 $people --optimizer psgd --trust vector-sum --epsilon 1 --population 4000 --checkpoint-every 1
half pca-mlp 10 $images --model pca-mlp --hidden 4 --rounds 40 --checkpoint-every 5

# Bounds, plans and solutions.
print eps-all eps --participation all --eps0 3 --n 60000 --rounds 80 --delta 1e-5
print eps-sampled eps --participation sampled --eps0 2 --n 1e6 --k 1000 --rounds 1e5 --delta 1e-8 --bounds best
print eps-check-in eps --participation check-in --eps0 1 --n 1e5 --gamma 0.01 --rounds 100 --delta 1e-6 --k-hidden --bounds best
print eps-once eps --participation once --eps0 2 --n 1e4 --k 100 --rounds 100 --delta 1e-6
print eps-rr2 eps --randomizer rr2 --eps0 2 --n 1e4 --rounds 10 --delta 1e-6 --bounds best
print eps-krr eps --randomizer krr:10 --eps0 2 --n 1e4 --delta 1e-6 --bounds best
print eps-laplace eps --randomizer laplace --eps0 2 --n 10000 --delta 1e-6 --bounds best
print eps-privunit eps --randomizer privunit --dim 100 --eps0 2 --n 1e4 --delta 1e-6 --bounds best
print eps-local eps --trust local --eps0 0.5 --n 100 --rounds 4 --delta 1e-6
print eps-gauss eps --trust distributed --randomizer gaussian --sigma 1 --participation check-in --n 6e5 --gamma 1e-3 --rounds 1000 --delta 1e-8
print eps-vecsum eps --randomizer vecsum --dim 100 --grid 314 --noise-bits 735 --n 1e4 --delta 1e-6
print eps-colluders eps --participation all --eps0 2 --n 1e4 --colluders 100 --delta 1e-6 --bounds best
print eps-within eps --participation all --eps0 2 --n 1e4 --delta 1e-6 --adaptive-within-round
print delta eps --participation all --eps0 2 --n 1e4 --eps 0.5 --bounds best
print curve eps --participation all --eps0 3 --n 60000 --delta 1e-5 --curve rounds=10,20,40 --bounds best
print plan-eps0 plan --target-eps 1 --delta 1e-5 --n 60000 --participation all --rounds 50 --solve eps0
print plan-rounds plan --target-eps 1 --delta 1e-5 --n 60000 --participation all --eps0 1 --solve rounds
print plan-sum plan --randomizer vecsum --target-eps 1 --delta 1e-6 --n 1e4 --dim 100 --solve noise-bits
for seed in 1 2 3; do
	print "solve-$seed" solve --n 1e4 --dim 5 --seed $seed
done
for trust in vector-sum distributed shuffle local central none; do
	print "solve-$trust" solve --n 1e4 --dim 5 --optimizer psgd --trust $trust
done
print solve-hinge solve --synthetic hinge --n 1e4 --dim 5
print solve-absolute solve --synthetic absolute --n 1e4 --dim 5 --optimizer psgd
print solve-phases solve --n 1e4 --dim 5 --lambda 0.05 --optimizer agd-phases
print solve-gd solve --n 1e4 --dim 5 --optimizer gd
print solve-pan solve --n 1e4 --dim 5 --optimizer pan-private
print solve-people solve $people --epsilon 4

# Certificates.
certify blanket --participation all --eps0 1 --n 1000 --rounds 2 --delta 1e-5
certify clones --participation all --eps0 1 --n 200 --delta 1e-6 --certificate-method clones-pld
certify basic --participation all --eps0 8 --n 100 --rounds 2 --delta 1e-6
certify sampled --participation sampled --eps0 2 --n 1e4 --k 60 --rounds 200 --delta 1e-6
certify check-in --participation check-in --eps0 1 --n 1e4 --gamma 0.01 --rounds 20 --delta 1e-6
certify once --participation once --eps0 1 --n 1000 --k 100 --rounds 10 --delta 1e-6

# Recorded experiments, and the names of all commands and flags.
experiment e5 --quick --setting agd/vector-sum/ridge-logistic
experiment e7 --quick --setting eps0-3-rounds-50 $images
flags
