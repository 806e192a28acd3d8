package loopback

import "net/http"

var origins = http.NewCrossOriginProtection()

// Foreign says whether a browser made a request for a page of another origin, as Sec-Fetch-Site says,
// or, in an old browser, Origin. Such a page cannot read the answer, but the request has its cost.
// Programs' requests have neither header, and are not foreign.
func Foreign(r *http.Request) bool {
	asked := *r
	asked.Method = http.MethodPost // of a GET the check would ask nothing
	return origins.Check(&asked) != nil
}

// Link says whether a browser made a request because somebody followed a link: its answer is to be a page.
func Link(r *http.Request) bool {
	h := r.Header
	return r.Method == http.MethodGet && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") == "document"
}
