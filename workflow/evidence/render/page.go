package render

import (
	"crypto/sha256"
	_ "embed" // of style
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
)

const (
	sandboxCreated = events.SandboxCreated
	sandboxRenamed = events.SandboxRenamed
)

// maxRows is how many rows a table of the evidence page has at most. The page says how many more there are.
const maxRows = 1000

// style is the CSS of the evidence page, which the page contains. The page's content security policy names
// its digest.
//
//go:embed style.css
var style string

// A page is the HTML page about a sandbox's evidence while it is written. It escapes every text from a
// record.
type page struct{ strings.Builder }

// row writes a row of a table to the evidence page. It escapes every cell.
func (p *page) row(cells ...string) {
	p.WriteString("<tr>")
	for _, c := range cells {
		p.WriteString("<td>" + html.EscapeString(visible(c)) + "</td>")
	}
	p.WriteString("</tr>\n")
}

// table writes a section with a title and a table to the evidence page: the names of the columns, head, and
// rows. If there are no rows, it writes the sentence none instead.
func (p *page) table(title, none string, head []string, rows [][]string) {
	p.WriteString("<h2>" + html.EscapeString(title) + "</h2>\n")
	if len(rows) == 0 {
		p.WriteString("<p>" + html.EscapeString(none) + "</p>\n")
		return
	}
	p.WriteString("<table><tr>")
	for _, h := range head {
		p.WriteString("<th>" + html.EscapeString(h) + "</th>")
	}
	p.WriteString("</tr>\n")
	for _, r := range rows[:min(len(rows), maxRows)] {
		p.row(r...)
	}
	p.WriteString("</table>\n")
	if rest := len(rows) - maxRows; rest > 0 {
		fmt.Fprintf(p, "<p>and %d more</p>\n", rest)
	}
}

// visible returns a text from an evidence record with its control characters, and the characters that change
// the writing direction, replaced by �.
func visible(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 || c >= 0x202a && c <= 0x202e || c >= 0x2066 && c <= 0x2069 || c == 0x200e || c == 0x200f {
			return '�'
		}
		return c
	}, text)
}

// Page returns the evidence of a sandbox as an HTML page for a person: the request, the commands, the changed
// files, the refusals and the promotions, and by whom. The page is one file, loads nothing and runs nothing.
func Page(r *Record) []byte {
	p := new(page)
	name := html.EscapeString(visible(r.nameOf()))
	sum := sha256.Sum256([]byte(style))
	fmt.Fprintf(p, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"+
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'\">\n"+
		"<meta name=\"referrer\" content=\"no-referrer\"><meta name=\"viewport\" content=\"width=device-width\">\n"+
		"<title>%s</title><style>%s</style></head><body>\n<h1>What was done in the sandbox %s</h1>\n",
		base64.StdEncoding.EncodeToString(sum[:]), name, style, name)
	p.created(r)
	p.verdicts(r)
	p.acts(r)
	p.touched(r)
	fmt.Fprintf(p, "<footer>Sandbox %s, %d records, root of the record %s, signed by %s. A page proves nothing by itself: "+
		"snapfs evidence verify checks the record.</footer>\n</body></html>\n",
		html.EscapeString(visible(r.Bundle.Sandbox)), len(r.Records), html.EscapeString(r.Report.Root), html.EscapeString(r.Report.Key))
	return []byte(p.String())
}

// created writes to the evidence page who created the sandbox, and under which policy.
func (p *page) created(r *Record) {
	first := r.Records[0]
	policy := object(first.Data, "policy")
	rows := [][]string{
		{"created by", who(first.Data)},
		{"at", when(first).Format(time.RFC1123)},
		{"workspace", text(first.Data, "workspace")},
		{"network", text(policy, "network")},
		{"limits", text(policy, "limits")},
		{"profile", text(object(policy, "profile"), "path")},
		{"backend", text(first.Data, "backends")},
	}
	p.table("How the sandbox was created", "", []string{"", ""}, rows)
}

// verdicts writes to the evidence page the result of verifying the bundle: a row for each verdict.
func (p *page) verdicts(r *Record) {
	p.WriteString("<h2>Verification</h2>\n<table>\n")
	for _, v := range r.Report.Verdicts {
		class := ""
		switch v.Result {
		case "yes":
			class = "yes"
		case "no":
			class = "no"
		}
		fmt.Fprintf(p, "<tr><td>%s</td><td class=\"%s\">%s</td><td>%s</td></tr>\n", html.EscapeString(v.Name), class, html.EscapeString(v.Result), html.EscapeString(visible(v.Why)))
	}
	p.WriteString("</table>\n")
}

// clock returns the time of an evidence record as text for a table.
func clock(r audit.Record) string { return when(r).Format("2006-01-02 15:04:05") }

// acts writes the recorded commands, refusals, checks and promotions of the sandbox to the evidence page.
func (p *page) acts(r *Record) {
	var ran, refused, read, checks, promoted [][]string
	row := map[string]int{} // of ran, by the run
	by := map[string]string{}
	for _, rec := range r.Records {
		d := rec.Data
		switch rec.Type {
		case events.CommandStarted:
			row[text(d, "run")] = len(ran)
			n, _ := d["arguments"].([]any)
			ran = append(ran, []string{clock(rec), text(d, "program"), fmt.Sprintf("%d, not shown", len(n)), "no end is recorded", ""})
		case events.CommandEnded:
			if i, ok := row[text(d, "run")]; ok {
				ran[i][3], ran[i][4] = "status "+text(d, "status"), (time.Duration(number(d, "milliseconds")) * time.Millisecond).String()
			}
		case events.CommandRefused:
			if i, ok := row[text(d, "run")]; ok {
				ran[i][3] = "refused"
				refused = append(refused, []string{clock(rec), "the command " + ran[i][1], text(d, "reason")})
			}
		case events.AccessRefused:
			refused = append(refused, []string{clock(rec), text(d, "name") + " " + text(d, "paths"), text(d, "reason")})
		case events.FileRead:
			read = append(read, []string{clock(rec), text(d, "paths"), text(d, "reason")})
		case events.NetworkRefused:
			refused = append(refused, []string{clock(rec), "a connection to " + text(d, "host") + " port " + text(d, "port"), text(d, "reason")})
		case events.LimitReached:
			refused = append(refused, []string{clock(rec), "the limit " + text(d, "limit") + " " + text(d, "value"), text(d, "reason")})
		case events.ApprovalAsked:
			refused = append(refused, []string{clock(rec), "a promotion to " + text(d, "target"), text(d, "reason") + ": " + text(d, "paths")})
		case events.CheckEnded:
			checks = append(checks, []string{clock(rec), text(d, "name"), text(d, "reason"), text(d, "check"), "status " + text(d, "status")})
		case events.ChangesPromoting, events.PromotionUndoing, events.PromotionRedoing:
			by[text(d, "promotion")] = who(d)
		case events.ChangesPromoted:
			promoted = append(promoted, []string{clock(rec), "promoted", text(d, "target"), text(d, "changes"), by[text(d, "promotion")]})
		case events.PromotionUndone:
			promoted = append(promoted, []string{clock(rec), "undone", text(d, "target"), text(d, "changes"), by[text(d, "promotion")]})
		case events.PromotionRedone:
			promoted = append(promoted, []string{clock(rec), "done again", text(d, "target"), text(d, "changes"), by[text(d, "promotion")]})
		}
	}
	p.table("What ran", "No command is recorded.", []string{"at", "program", "arguments", "result", "took"}, ran)
	p.table("What was refused", "No refusal is recorded.", []string{"at", "what", "why"}, refused)
	if read != nil {
		p.table("What was read of the recorded files", "", []string{"at", "what", "by"}, read)
	}
	p.table("What was checked", "No check is recorded.", []string{"at", "stage", "when", "check", "result"}, checks)
	p.table("What was promoted, and by whom", "No promotion is recorded.", []string{"at", "what", "target", "changes", "by"}, promoted)
}

// touched writes to the evidence page the files that the sandbox changed, from the last manifest, the
// recorded list of them.
func (p *page) touched(r *Record) {
	var rows [][]string
	if n := len(r.Bundle.Manifests); n > 0 {
		for _, line := range r.Bundle.Manifests[n-1] {
			var e map[string]any
			if json.Unmarshal(line, &e) != nil {
				continue
			}
			path := text(e, "path")
			if raw, err := base64.StdEncoding.DecodeString(text(e, "path_base64")); path == "" && err == nil {
				path = strings.ToValidUTF8(string(raw), "�")
			}
			rows = append(rows, []string{text(e, "change"), path, text(e, "size")})
		}
	}
	p.table("What it touched", "No changed file is recorded.", []string{"change", "path", "bytes"}, rows)
}
