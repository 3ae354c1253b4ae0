package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs/places"
	"github.com/spf13/cobra"
)

const hiddenIntro = `A sandbox does not see what these places hold: it finds an empty read-only
directory, or an empty file. --expose PATH shows one of them, --hide PATH hides more
("snapfs show" lists what a sandbox does not see). A path that is a symbolic link, or
leads through one, is hidden under that name and where the host's links lead, also one of
--hide: a command that puts another link in its place opens nothing. A second mount of
the same filesystem is hidden too. A place that holds the workspace is shown, without the
other entries that are in it when the sandbox starts, or with all of them if it also holds
your home directory. The file of a secret that only the network proxy has ("snapfs help
profile") is hidden like a place of this list, and --expose of it is an error.

When a command fails that names a hidden place, in its arguments or in the last lines that
it prints to a terminal, "snapfs run" and "snapfs exec" say that the place is hidden. They
compare names only, and follow no symbolic link that the command names. A program that
opens such a place without naming it is reported only under a profile with the section
[result], and by "snapfs learn".

~/ is your home directory, by HOME and by /etc/passwd, /root and each directory in /home;
for root also the homes of all accounts. * stands for every entry. Databases and logs are
hidden entry by entry, because a package that is installed in the sandbox needs their
directories; of a user's sandbox only what that user can read.

Of the variables of its caller a command in a sandbox gets those that are known to be
harmless: the user's and the terminal's names, language, editor and paths, and the
settings of compilers, languages and package managers, unless a value holds a
credential. --env NAME passes one more, --env NAME=VALUE sets one; "snapfs show" lists
those of the present environment that do not pass.

A place that does not exist yet is hidden too, for as long as the sandbox runs: what the
host makes there after the start ("docker login", "gh auth login") is absent inside. Of a
place whose directory does not exist, that directory is absent: ~/.config, for one. A
file that the sandbox makes there is its own. Links are followed once, at the start, also
those that lead to nothing yet. A place that exists at a start is masked, also under a
name that an earlier session gave to its directory. A copy, such as that of btrfs, ZFS
or plain, is as old as the sandbox, so that nothing comes later.

What the host writes to an empty place is not seen either. An empty log, and an empty file
outside of the homes that is listed without a *, is absent in the sandbox. In an empty
directory of these, such as /etc/ssl/private, root's sandboxes can make files of their
own, because packages do; when the host has files in it at a later start, it is masked.

By its name alone, snapfs cannot know a secret. So these are seen: what lies under a name
that is not listed, such as ~/aws-old after "mv ~/.aws ~/aws-old" on the host; a new
entry of a place with a *; settings without a credential at the start, to which one is
added later; and a new file in a directory of which --expose shows a part.

A state directory (SNAPFS_HOME, --state) at an unusual place is listed in its user's home
when a command first uses it; sandboxes that start later, of this user and of root, do not
see it. One is seen that only an earlier snapfs has used, or that a user has who owns no
home.

A home directory that is made in /home while root's sandbox runs, as by useradd, is absent
in it until the next start. It is seen where /home is a filesystem of its own or has
entries that are no directories, and so are homes at other places. Root's sandboxes follow
the links of all homes: what a user's ~/.aws leads to, /etc for example, is hidden from them.

The host may remove a place or put another file over it: it stays hidden. Without root
there are exceptions in another user's directory with mounts in it, which is shown as on
the host. There a place is seen that did not exist at the start. One that the host
replaces is seen if this user could not read it at the start, if it was an empty directory
and not named by --hide, and in a directory of more than 500 entries: if it lies directly
in that, of which a run warns, or if the host replaces a whole directory in that. With
root, too, one is seen that the host replaces on a filesystem that is shown as it is
because the kernel makes no overlay of it, such as FAT.

In place of /etc/shadow and /etc/gshadow root's sandboxes have read-only copies, made at
the start, with * for each password's hash: su and setpriv work, and no password does.
useradd, passwd and packages that make an account need --expose /etc/shadow, which shows
all files with hashes. Accounts that they make are the sandbox's own.

Files of the workspace, such as .env, and shell start files, such as .bashrc, are shown.`

// newHidden returns the help topic hidden, the list of files and directories of the host that a sandbox does
// not see.
func newHidden(*app) *cobra.Command {
	var b strings.Builder
	b.WriteString(hiddenIntro + "\n")
	for _, row := range places.Rows {
		b.WriteString("\n" + row.Program + ": " + hiddenWhat(row) + "\n")
		b.WriteString(wrapped("  ", strings.Join(row.Places, " "), 80))
	}
	return &cobra.Command{Use: "hidden", Short: "list the places that a sandbox does not see", Long: strings.TrimRight(b.String(), "\n")}
}

func hiddenWhat(row places.Row) string {
	if row.WithCredential {
		return row.What + ", only where they hold a credential"
	}
	return row.What
}

// writeHidden writes docs/hidden.md, the list of files and directories of the host that a sandbox does not
// see.
func writeHidden(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# What a sandbox does not see\n\nWritten by `make docs` from engine/hostfs/places/places.go, like `snapfs help hidden`.\n\n" + hiddenIntro +
		"\n\n| of | what | places |\n| --- | --- | --- |\n")
	for _, row := range places.Rows {
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", row.Program, hiddenWhat(row), strings.Join(row.Places, "` `"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
