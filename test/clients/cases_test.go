package clients

// rules are what the sandboxes of these tests may reach. A name that leads to a
// private address needs that address too, and one that browsers speak to as they do,
// an option.
const rules = "web.test:80,web.test:443,git.test:443,npm.test:80,go.test:80,apt.test:80,db.test:5432,ws.test:80,ws.test:443,page.test:443," +
	"203.0.113.17:3128,pinned.test:80,inward.test:80,corp.test:80,10.86.0.2:80"

// A try is something that a client does. The script runs in the workspace, where
// ca.pem says whom to trust.
type try struct {
	what, script string
	// says is what the client is to say: with success where why is empty, and in
	// plain words where it was refused.
	says string
	// kind, place and why are the decision against it, as an event has it: a name or
	// an address, with a port.
	kind, place, why string
}

// A client is a program with what it tries.
type client struct {
	name  string
	needs []string
	tries []try
}

const (
	noAddr  = "an address that no rule names"
	noName  = "no rule allows other.test"
	refused = "Connection refused"
)

var all = []client{
	{"curl", []string{"curl"}, []try{
		{what: "http", script: "curl -sS http://web.test/", says: "this is web.test"},
		{what: "https", script: "curl -sS --cacert ca.pem https://web.test/", says: "this is web.test"},
		{what: "a private address that a rule names", script: "curl -sS http://corp.test/", says: "this is corp.test"},
		{what: "a name of /etc/hosts", script: "curl -sS http://pinned.test/", says: "this is pinned.test"},
		{"another name of /etc/hosts", "curl -sS http://unknown.test/", "Connection reset by peer", "tcp", "pinned.test:80", "the Host is unknown.test, not pinned.test"},
		{
			"a port of a name of /etc/hosts", "curl -sS http://pinned.test:8080/", "Failed to connect to pinned.test port 8080",
			"tcp", "203.0.113.30:8080", noAddr,
		},
		{"another name", "curl -sS http://other.test/", "Could not resolve host: other.test", "dns", "other.test", noName},
		{"another port", "curl -sS http://web.test:8080/", "Failed to connect to web.test port 8080", "tcp", "web.test:8080", "no rule allows web.test:8080"},
		{"an address", "curl -sS http://203.0.113.10/", "Failed to connect to 203.0.113.10 port 80", "tcp", "203.0.113.10:80", noAddr},
		{
			"a name that leads inside", "curl -sS http://inward.test/", "Failed to connect to inward.test port 80",
			"tcp", "inward.test:80", "unfit address: inward.test leads to 10.86.0.1: private; needs a rule with its address",
		},
		{
			"another Host", "curl -sS -H 'Host: other.test' http://web.test/", "Connection reset by peer",
			"tcp", "web.test:80", "the Host is other.test, not web.test",
		},
		{
			"another server name", "curl -sS --cacert ca.pem --connect-to ::web.test: https://other.test/", "Connection reset by peer",
			"tcp", "web.test:443", "the server name is other.test, not web.test",
		},
	}},
	{"proxy", []string{"curl"}, []try{
		{what: "allowed by its address", script: "http_proxy=http://203.0.113.17:3128 curl -sS http://other.test/", says: "this is other.test"},
		{
			what: "allowed by its address, with TLS", script: "https_proxy=http://203.0.113.17:3128 curl -sS --cacert ca.pem https://other.test/",
			says: "this is other.test",
		},
		{what: "not for this name", script: "http_proxy=http://other.test:3128 no_proxy=web.test curl -sS http://web.test/", says: "this is web.test"},
		{
			"another name", "http_proxy=http://other.test:3128 curl -sS http://web.test/", "Could not resolve proxy: other.test",
			"dns", "other.test", noName,
		},
		{
			"another address", "https_proxy=http://203.0.113.20:3128 curl -sS https://web.test/", "Failed to connect to 203.0.113.20 port 3128",
			"tcp", "203.0.113.20:3128", noAddr,
		},
		{
			"a server that is no proxy for others", "http_proxy=http://web.test:80 curl -sS http://other.test/", "Connection reset by peer",
			"tcp", "web.test:80", "the Host is other.test, not web.test",
		},
	}},
	{"git", []string{"git"}, []try{
		{what: "clone", script: "git clone -q https://git.test/repo.git; cat repo/word", says: greeting},
		{"another name", "git clone -q https://other.test/repo.git none", "Could not resolve host: other.test", "dns", "other.test", noName},
		{"another port", "git clone -q https://git.test:8443/repo.git none", "Failed to connect to git.test port 8443", "tcp", "git.test:8443", "no rule allows git.test:8443"},
		{"an address", "git clone -q https://203.0.113.11/repo.git none", "Failed to connect to 203.0.113.11 port 443", "tcp", "203.0.113.11:443", noAddr},
	}},
	{"npm", []string{"npm", "node"}, []try{
		{what: "install", script: npm + "http://npm.test; node -p 'require(\"greeting\")'", says: greeting},
		{"another name", npm + "http://other.test", "ENOTFOUND other.test", "dns", "other.test", noName},
		{"another port", npm + "http://npm.test:8080", "ECONNREFUSED", "tcp", "npm.test:8080", "no rule allows npm.test:8080"},
		{"an address", npm + "http://203.0.113.12", "ECONNREFUSED 203.0.113.12:80", "tcp", "203.0.113.12:80", noAddr},
	}},
	{"go", []string{"go"}, []try{
		{what: "mod download", script: mod("http://go.test") + "; cat $GOPATH/pkg/mod/greeting.test/hello@v1.0.0/hello.go", says: greeting},
		{"another name", mod("http://other.test"), "lookup other.test on 198.18.0.1:53: no such host", "dns", "other.test", noName},
		{"another port", mod("http://go.test:8080"), "connect: connection refused", "tcp", "go.test:8080", "no rule allows go.test:8080"},
		{"an address", mod("http://203.0.113.13"), "dial tcp 203.0.113.13:80: connect: connection refused", "tcp", "203.0.113.13:80", noAddr},
	}},
	{"apt", []string{"apt-get", "dpkg-deb"}, []try{
		{
			what: "update, and install or download",
			script: apt("http://apt.test") + `
if [ "$(id -u)" = 0 ]; then
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y -c apt.conf install greeting
	cat /usr/share/greeting/word
else
	apt-get -qq -c apt.conf download greeting
	dpkg-deb --fsys-tarfile greeting_*.deb | tar -xO ./usr/share/greeting/word
fi`,
			says: greeting,
		},
		{"another name", apt("http://other.test"), "Could not resolve 'other.test'", "dns", "other.test", noName},
		{"another port", apt("http://apt.test:8080"), refused, "tcp", "apt.test:8080", "no rule allows apt.test:8080"},
		{"an address", apt("http://203.0.113.14"), "Could not connect to 203.0.113.14:80", "tcp", "203.0.113.14:80", noAddr},
	}},
	{"psql", []string{"psql", "pg_createcluster"}, []try{
		{what: "verify-full", script: psql("db.test", "5432"), says: "over TLSv1.3"},
		{"another name", psql("other.test", "5432"), `could not translate host name "other.test" to address`, "dns", "other.test", noName},
		{"another port", psql("db.test", "8080"), "port 8080 failed: Connection refused", "tcp", "db.test:8080", "no rule allows db.test:8080"},
		{"an address", psql("203.0.113.15", "5432"), `"203.0.113.15", port 5432 failed: Connection refused`, "tcp", "203.0.113.15:5432", noAddr},
	}},
	{"websocket", []string{"node"}, []try{
		{what: "ws", script: socket("http://ws.test/"), says: "heard: " + greeting},
		{what: "wss", script: socket("https://ws.test/"), says: "heard: " + greeting},
		{"another name", socket("http://other.test/"), "ENOTFOUND other.test", "dns", "other.test", noName},
		{"another port", socket("http://ws.test:8080/"), "ECONNREFUSED", "tcp", "ws.test:8080", "no rule allows ws.test:8080"},
		{"an address", socket("http://203.0.113.16/"), "ECONNREFUSED 203.0.113.16:80", "tcp", "203.0.113.16:80", noAddr},
	}},
	{"chromium", []string{"chromium"}, []try{
		{what: "a page with a WebSocket", script: browse("https://page.test/page"), says: "heard: " + greeting},
		{what: "another server that has no keys for encrypted hellos", script: browse("https://web.test/"), says: "this is web.test"},
		{"another name", browse("http://other.test/"), "ERR_NAME_NOT_RESOLVED", "dns", "other.test", noName},
	}},
}

// browse shows what a page is once it is loaded.
func browse(url string) string {
	return "chromium --headless --no-sandbox --user-data-dir=$(mktemp -d) --disable-gpu --disable-dev-shm-usage --no-first-run --disable-breakpad " +
		"--disable-background-networking --disable-component-update --disable-sync --ignore-certificate-errors --dump-dom " + url + ` 2>said
if grep -o 'net::ERR_.*' said; then exit 1; fi`
}

const npm = "mkdir -p npm; cd npm; npm install --no-audit --no-fund --no-update-notifier --cache cache --fetch-retries 0 greeting --registry "

func mod(proxy string) string {
	return "export GOPATH=$(mktemp -d) GOSUMDB=off GOTOOLCHAIN=local GOFLAGS=-modcacherw GOPROXY=" + proxy +
		"; mkdir -p mod; (cd mod; printf 'module m\\nrequire greeting.test/hello v1.0.0\\n' >go.mod; go mod download)"
}

// apt keeps its lists in the workspace, so that it works as any user.
func apt(source string) string {
	return `mkdir -p apt/lists/partial apt/archives/partial
echo "deb [trusted=yes] ` + source + ` /" >apt/sources.list
cat >apt.conf <<E
Dir::Etc::SourceList "$PWD/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$PWD/apt/lists";
Dir::Cache "$PWD/apt";
Acquire::Languages "none";
Acquire::Retries "0";
APT::Update::Error-Mode "any";
APT::Sandbox::User "root";
E
apt-get -qq -c apt.conf update`
}

func psql(host, port string) string {
	return `psql "host=` + host + ` port=` + port + ` user=reader dbname=postgres sslmode=verify-full sslrootcert=ca.pem" ` +
		`-Atc "select 'over ' || version from pg_stat_ssl where pid = pg_backend_pid()"`
}

// socket opens a WebSocket as RFC 6455 has it, says a word and waits for its echo.
func socket(url string) string {
	return `node -e '
const word = Buffer.from("` + greeting + `");
const url = "` + url + `";
const r = require(url.split(":")[0]).get(url, { headers: {
	Connection: "Upgrade", Upgrade: "websocket", Origin: url, "Sec-WebSocket-Version": 13, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
} });
r.on("upgrade", (response, stream, head) => {
	const heard = (b) => { if (b.length > 2) { console.log("heard: " + b.subarray(2)); process.exit(0); } };
	heard(head);
	stream.on("data", heard);
	stream.write(Buffer.concat([Buffer.from([0x81, 0x80 | word.length, 0, 0, 0, 0]), word]));
});
r.on("error", (e) => { console.error(String(e), e.code); process.exit(1); });
'`
}
