package walls

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A wall is what is left out of the broken build, and the lines of doctor --prove
// that must notice.
type wall struct {
	// parts are left out.
	parts string
	falls []string
	// also falls with it, because of why.
	also []string
	why  string
	// on is the kind of sandbox in which it is tried.
	on kind
	// who of the two it is there for.
	who who
}

type kind int

const (
	plain    kind = iota // no network, no limits
	shown                // the same, where files are shown as they really are
	beside               // the same, where snapfs keeps its data beside the workspace
	served               // the same, of the backend fusecow, whose process shows the host's files
	edge                 // a network that asks first
	requests             // the same, where the proxy reads requests
	limits               // one limit each
	pooled               // the same, with a pool
	counting             // the same, on a filesystem that counts files: with project quotas
)

type who int

const (
	everybody who = iota
	root
	user
)

var names = map[who]string{root: "root", user: "user"}

// call and capability are what a command gets that no sandbox gives.
func call(number int) string       { return fmt.Sprintf("call:%d", number) }
func capability(number int) string { return fmt.Sprintf("capability:%d", number) }

// hostsRoot is what falls where root of a sandbox is root of the host: what is
// about that, and what of pid 1 belongs to that user.
var (
	hostsRoot    = []string{"set-uid", "pid-1"}
	whyHostsRoot = "root of the sandbox is root of the host then, who owns what pid 1 is seen by"
)

// power is what only the host's root may do: it is kept from a sandbox by its own
// users, by its capabilities and by the filter of calls, so that all three are out. An
// ordinary user is kept from it by the kernel.
func power(name string, number, allowed int) wall {
	return wall{
		parts: "users " + capability(allowed) + " " + call(number), falls: []string{name},
		also: hostsRoot, why: whyHostsRoot, who: root,
	}
}

// own is what root of a user namespace may do in it: kept from a sandbox by its
// capabilities and the filter.
func own(name string, number, allowed int) wall {
	return wall{parts: capability(allowed) + " " + call(number), falls: []string{name}}
}

// filtered is what the filter of calls alone keeps from a sandbox.
func filtered(name string, number int) wall {
	return wall{parts: call(number), falls: []string{name}}
}

// socketcall is the number of socketcall(2) for 32-bit programs of x86; in 64-bit ones it is a harmless call.
const socketcall = 102

func table() []wall {
	return []wall{
		{parts: "memory", falls: []string{"memory", "memory-files"}, on: limits},
		{parts: "memory-files", falls: []string{"memory-files"}, on: limits, who: user},
		{parts: "pids", falls: []string{"pids"}, on: limits},
		{parts: "files", falls: []string{"files"}, on: limits},
		{parts: "cpus", falls: []string{"cpus"}, on: limits},
		{parts: "cpu-time", falls: []string{"cpu-time"}, on: limits},
		{parts: "time", falls: []string{"time"}, on: limits},
		{parts: "disk", falls: []string{"disk"}, on: pooled, who: root},
		{parts: "inodes", falls: []string{"inodes"}, on: counting, who: root},
		{parts: "io-write", falls: []string{"write-rate"}, on: limits, who: root},
		{parts: "io-read", falls: []string{"read-rate"}, on: limits, who: root},
		{parts: "io-write-ops", falls: []string{"write-ops"}, on: limits, who: root},
		{parts: "io-read-ops", falls: []string{"read-ops"}, on: limits, who: root},

		{
			parts: "network", falls: []string{"name", "ipv4", "ipv6", "resolver", "metadata", "loopback"},
			why: "without a network of its own the sandbox has the host's: one wall, tried in six ways",
		},
		{
			parts: "network scope", falls: []string{"abstract-socket"}, also: []string{"name", "ipv4", "ipv6", "resolver", "metadata", "loopback"},
			why: "abstract sockets belong to the network, and Landlock keeps them from the sandbox once more",
		},
		{parts: "edge-names", falls: []string{"name"}, on: edge},
		{parts: "edge-ipv4", falls: []string{"ipv4"}, on: edge},
		{parts: "edge-ipv6", falls: []string{"ipv6"}, on: edge},
		{parts: "edge-datagrams", falls: []string{"resolver"}, on: edge},
		{parts: "edge-special", falls: []string{"metadata"}, on: edge},
		{parts: "edge-exact", falls: []string{"tls-record", "http-blank"}, on: edge},
		{parts: "edge-tls", falls: []string{"tls-name", "http-name"}, on: edge},
		{
			parts: "secret", falls: []string{"secret"}, also: []string{"base-url", "aws"}, on: requests,
			why: "the server of a base URL gets a secret, too, as keys of AWS are one, and the same placeholder is inside",
		},
		{parts: "tokens", falls: []string{"tokens"}, on: requests},
		{parts: "http-method", falls: []string{"http-method"}, on: requests},
		{parts: "http-path", falls: []string{"http-path"}, on: requests},
		{parts: "labels", falls: []string{"labels"}, on: requests},
		{parts: "ask", falls: []string{"ask"}, on: requests},
		{parts: "base-url", falls: []string{"base-url"}, on: requests},
		{parts: "aws", falls: []string{"aws"}, on: requests},

		{
			parts: "masked stand-ins", falls: []string{"masked"}, also: []string{"state", "other-name", "replaced-secret"},
			why: "the state directory is hidden as all else is, and so is a file that is replaced; below its masks, an overlay of root's hides the same once more",
		},
		{parts: "passwords", falls: []string{"passwords"}, who: root},
		{parts: "late", falls: []string{"late-secret"}},
		{parts: "fixed", falls: []string{"replaced-secret"}, on: served},
		{parts: "state", falls: []string{"state", "other-sandbox"}, why: "the state directory holds the files of all sandboxes"},
		{
			parts: "backends", falls: []string{"state", "other-sandbox"}, on: beside,
			why: "what a backend keeps outside of the state directory is the copies of all sandboxes",
		},
		{parts: "variables", falls: []string{"variables"}},
		{parts: "read-only", falls: []string{"read-only"}, on: shown},
		{parts: "data", falls: []string{"data"}},
		{parts: "tools", falls: []string{"tools"}},
		{parts: "writable", falls: []string{"writable"}},
		{parts: "readable", falls: []string{"readable"}},
		{parts: "recorded", falls: []string{"recorded"}},
		{parts: "tools-allow", falls: []string{"tools-allow"}},
		{parts: "tools-digest", falls: []string{"tools-digest"}},
		{parts: "tools-arguments", falls: []string{"tools-arguments"}},
		{parts: "other-name", falls: []string{"other-name"}},
		{parts: "approval", falls: []string{"approval"}},
		{
			parts: "read-only-trees sockets", falls: []string{"read-only"}, also: []string{"host-socket"}, on: shown, who: user,
			why: "the overlay that keeps the host's sockets away is read-only in itself",
		},
		{parts: "sockets", falls: []string{"host-socket"}, on: shown},
		{parts: "proc", falls: []string{"see-process", "other-sandbox"}, why: "the host's /proc lists the processes of all sandboxes"},
		{
			parts: "pids-own proc scope users", falls: []string{"signal-process"}, also: append([]string{"see-process"}, hostsRoot...),
			why: "what is in the host's pid namespace sees it, and only the host's root may signal its processes; " + whyHostsRoot, who: root,
		},
		{
			parts: "pids-own proc scope", falls: []string{"signal-process"}, also: []string{"see-process"},
			why: "what is in the host's pid namespace sees it", who: user,
		},
		{
			parts: "pids-own proc scope users " + capability(unix.CAP_SYS_PTRACE), falls: []string{"trace-process"},
			also: append([]string{"see-process", "signal-process"}, hostsRoot...),
			why:  "who traces a process can signal it; " + whyHostsRoot, who: root,
		},
		{parts: "sealed", falls: []string{"pid-1"}},
		{parts: "host-terminal", falls: []string{"host-terminal"}},

		{
			parts: "users nodev", falls: []string{"device"}, also: append([]string{"block-device"}, hostsRoot...),
			why: "a disk is a device; " + whyHostsRoot, who: root,
		},
		{parts: "users disks", falls: []string{"block-device"}, also: hostsRoot, why: whyHostsRoot, who: root},
		{parts: "proc-sys " + capability(unix.CAP_NET_ADMIN), falls: []string{"kernel-settings"}},
		{
			parts: "no-new-privileges", falls: []string{"set-uid"}, also: []string{"writable", "readable", "recorded", "tools-allow"},
			why: "the lists of paths, by Landlock, and the observer of calls come after it, and this build leaves them out with it",
		},
		power("clock", unix.SYS_ADJTIMEX, unix.CAP_SYS_TIME),
		power("module", unix.SYS_FINIT_MODULE, unix.CAP_SYS_MODULE),
		power("kexec", unix.SYS_KEXEC_LOAD, unix.CAP_SYS_BOOT),
		power("swap", unix.SYS_SWAPON, unix.CAP_SYS_ADMIN),
		power("kernel-log", unix.SYS_SYSLOG, unix.CAP_SYSLOG),
		own("namespace", unix.SYS_SETNS, unix.CAP_SYS_ADMIN),
		own("mount", unix.SYS_MOUNT, unix.CAP_SYS_ADMIN),
		own("mount-object", unix.SYS_FSOPEN, unix.CAP_SYS_ADMIN),
		own("change-root", unix.SYS_PIVOT_ROOT, unix.CAP_SYS_ADMIN),
		own("reboot", unix.SYS_REBOOT, unix.CAP_SYS_BOOT),
		filtered("user-namespace", unix.SYS_UNSHARE),
		filtered("bpf", unix.SYS_BPF),
		filtered("perf", unix.SYS_PERF_EVENT_OPEN),
		filtered("io-uring", unix.SYS_IO_URING_SETUP),
		filtered("userfaultfd", unix.SYS_USERFAULTFD),
		filtered("keyring", unix.SYS_KEYCTL),
		filtered("file-handle", unix.SYS_OPEN_BY_HANDLE_AT),
		filtered("watch", unix.SYS_FANOTIFY_INIT),
		{
			parts: call(unix.SYS_SOCKET), falls: []string{"hypervisor", "packets"}, who: root,
			why: "the filter looks at the address family of a socket: one wall, tried in two ways",
		},
		{parts: call(unix.SYS_SOCKET), falls: []string{"hypervisor"}, who: user},
		{
			parts: capability(unix.CAP_NET_RAW) + " " + call(unix.SYS_SOCKET), falls: []string{"packets"}, also: []string{"hypervisor"}, who: user,
			why: "the filter looks at the address family of a socket, that of the hypervisor too",
		},
		filtered("hypervisor", socketcall),
		filtered("terminal", unix.SYS_IOCTL),
	}
}

// An excuse is for walls that no build is without, since the doctor cannot try them
// at all.
type excuse struct {
	lines []string
	on    kind
	who   who
	// why, and what the doctor says as long as that is so.
	why, says string
}

var excuses = []excuse{
	{lines: []string{"disk", "inodes"}, on: limits, who: user, why: "an ordinary user sets no quotas", says: "only root can limit"},
	{
		lines: []string{"write-rate", "read-rate", "write-ops", "read-ops"}, on: limits, who: user,
		why: "only control groups hold rates, and this user is given none", says: "control group",
	},
	{lines: []string{"inodes"}, on: counting, who: root, why: "this kernel counts no files: it has no project quotas", says: "quotas"},
}

// notHere are the lines that nothing of snapfs's holds for an ordinary user: what
// the kernel does, and a sandbox of the user's cannot be made without it.
var notHere = map[string]string{
	"clock":         "the kernel asks the host's root",
	"module":        "the kernel asks the host's root",
	"kexec":         "the kernel asks the host's root",
	"swap":          "the kernel asks the host's root",
	"kernel-log":    "the kernel asks the host's root",
	"trace-process": "a process in a user namespace traces none outside of it, and an ordinary user's sandbox must have one",
	"passwords":     "an ordinary user cannot read the hashes of passwords",
	"device":        "a user namespace makes no devices",
	"block-device":  "a disk belongs to the host's root",
}
