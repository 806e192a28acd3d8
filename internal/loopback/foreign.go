package loopback

import "net/http"

var origins = http.NewCrossOriginProtection()

// Foreign says whether a browser made a request for a page of another origin, as Sec-Fetch-Site says,
// or, in an old browser, Origin. Such a page cannot read the answer, but the request has its cost.
// Programs' requests have neither header, and are not foreign. If linked, others may link to what is asked for:
// who follows a link is not foreign either.
func Foreign(r *http.Request, linked bool) bool {
	if h := r.Header; linked && r.Method == http.MethodGet && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document" {
		return false
	}
	asked := *r
	asked.Method = http.MethodPost // of a GET the check would ask nothing
	return origins.Check(&asked) != nil
}
