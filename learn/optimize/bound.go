package optimize

import "math"

// Plans minimise the bounds in this file. They are upper bounds on the expected excess
// population loss, proved in convex.md, and +Inf outside their preconditions. They hold for
// iid clients and batches chosen without looking at data.

// averagedBound is D²/(2ηT) + ηm/2 for the mean of θ_0 … θ_{T−1}, where E‖ḡ_t‖² ≤ m given the
// past. Source: Cheu, Joseph, Mao, Peng (ICLR 2022), Lemma 4.2.
func averagedBound(rounds int64, distance, step, moment float64) float64 {
	return distance*distance/(2*step*float64(rounds)) + step*moment/2
}

// averagedSmoothBound is D²/(2ηT) + ηv/(2(1 − βη)) + LD/T for the mean of
// θ_0 … θ_{T−1} and a β-smooth objective, η < 1/β, E‖error‖² ≤ v.
func averagedSmoothBound(rounds int64, distance, step, variance, beta, lipschitz float64) float64 {
	if !(beta*step < 1) {
		return math.Inf(1)
	}
	t := float64(rounds)
	return distance*distance/(2*step*t) + step*variance/(2*(1-beta*step)) + lipschitz*distance/t
}

// reuseBound is the generalisation error L²η(T − 1)/n of gradient descent that
// takes the same n clients in every round; it needs a β-smooth objective and
// η ≤ 2/β. Source: Bassily, Feldman, Talwar, Thakurta 2019, Lemma 3.4.
func reuseBound(rounds, clients int64, step, lipschitz, beta float64) float64 {
	if !(step*beta <= 2*(1+1e-12)) {
		return math.Inf(1)
	}
	return lipschitz * lipschitz * step * float64(rounds-1) / float64(clients)
}

// acsaBound is c‖θ_1 − u‖²/(T(T+1)) + (2T+1)v/(6(c − 2β)); see acsa.
func acsaBound(rounds int64, distance, curvature, beta, variance float64) float64 {
	t := float64(rounds)
	room := curvature - 2*beta
	if !(room >= 0) || room == 0 && variance > 0 {
		return math.Inf(1)
	}
	bound := curvature * distance * distance / (t * (t + 1))
	if variance > 0 {
		bound += (2*t + 1) * variance / (6 * room)
	}
	return bound
}

// acsaCurvature returns the c that minimises acsaBound.
func acsaCurvature(rounds int64, distance, beta, variance float64) float64 {
	t := float64(rounds)
	return 2*beta + math.Sqrt(variance*t*(t+1)*(2*t+1)/6)/distance
}

// smoothingBound is L²/(2β), the largest distance of an envelope below its loss.
func smoothingBound(lipschitz, beta float64) float64 { return lipschitz * lipschitz / (2 * beta) }

// acsaSmoothing is the β that minimises the sum of smoothingBound and 2βD²/(T(T+1)), the term
// of acsaBound that depends on β.
func acsaSmoothing(rounds int64, distance, lipschitz float64) float64 {
	t := float64(rounds)
	return lipschitz * math.Sqrt(t*(t+1)) / (2 * distance)
}
