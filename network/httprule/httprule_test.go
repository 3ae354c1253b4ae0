package httprule

import "testing"

func TestCleanGivesOnePathOneForm(t *testing.T) {
	for path, want := range map[string]string{
		"/":                    "/",
		"/v1/messages":         "/v1/messages",
		"/v1/../admin":         "/admin",
		"/v1/%2e%2e/admin":     "/admin",
		"/v1/%2E./admin/":      "/admin/",
		"//v1///x":             "/v1/x",
		"/v1/.":                "/v1/",
		"/v1/..":               "/",
		"/../../etc":           "/etc",
		"/a%3ab":               "/a%3Ab",
		"/%76%31/x":            "/v1/x",
		"/models/m:generate":   "/models/m:generate",
		"/a%20b;c=1/d":         "/a%20b;c=1/d",
		"/v1/%7Euser/%41%2D_.": "/v1/~user/A-_.",
	} {
		if got, err := Clean(path); got != want || err != nil {
			t.Errorf("Clean(%q) = %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "*", "v1", "/a%2fb", "/a%2Fb", "/a%5cb", "/a\\b", "/%00", "/%", "/%4", "/%zz", "/..;/admin", "/a/.;x/b", "/%252e%252e/x", "/%252fx", "/%25252e", "/a b", "/é", "/;/x", "/%0d%0a"} {
		if got, err := Clean(path); err == nil {
			t.Errorf("Clean(%q) = %q; want an error", path, got)
		}
	}
}

func TestRuleMatchesMethodAndPath(t *testing.T) {
	for _, c := range []struct {
		methods, path, method, asked string
		want                         bool
	}{
		{"GET", "/v1/*", "GET", "/v1/x/y", true},
		{"GET", "/v1/*", "GET", "/v1/", true},
		{"GET", "/v1/*", "GET", "/v1", false},
		{"GET", "/v1/*", "GET", "/v10", false},
		{"GET", "/v1*", "GET", "/v10", true},
		{"GET", "/v1/*", "POST", "/v1/x", false},
		{"GET,POST", "", "POST", "/any", true},
		{"", "/a/*/c", "PUT", "/a/b/c", true},
		{"", "/a/*/c", "PUT", "/a/b/d/c", false},
		{"", "/a/*/c", "PUT", "/a//c", false},
		{"", "/a/*/c/*", "PUT", "/a/b/c/d/e", true},
		{"", "/a/*/c", "PUT", "/a/b/c/", false},
		{"", "/a", "PUT", "/a", true},
		{"", "/a", "PUT", "/a/", false},
		{"", "/*", "PUT", "/", true},
	} {
		if got := (Rule{c.methods, c.path}).Allows(c.method, c.asked); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestCoversIsNeverWiderThanAllows(t *testing.T) {
	for _, c := range []struct {
		wide, narrow Rule
		want         bool
	}{
		{Rule{}, Rule{"GET", "/v1/*"}, true},
		{Rule{"GET", ""}, Rule{}, false},
		{Rule{"GET,POST", "/v1/*"}, Rule{"POST", "/v1/messages"}, true},
		{Rule{"GET", "/v1/*"}, Rule{"POST", "/v1/messages"}, false},
		{Rule{"GET", "/v1/*"}, Rule{"GET", "/v2"}, false},
		{Rule{"GET", "/v1/*"}, Rule{"GET", "/*"}, false},
		{Rule{"GET", "/v1/*"}, Rule{"GET", "/v1/*/x"}, true},
	} {
		if got := c.wide.Covers(c.narrow); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
