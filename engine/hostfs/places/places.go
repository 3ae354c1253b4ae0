// Package places lists what snapfs hides from sandboxes: the places where programs store keys, passwords and logs.
package places

import "github.com/snapfs/snapfs/engine/catalog"

//go:generate go test -count=1 -run TestEachPlaceIsListed . -args -update

// A Row lists the places where a program, or a group of programs, stores files that snapfs hides from
// sandboxes, such as keys. docs/hidden.md prints the rows.
type Row struct {
	Program string
	// What says what lies there.
	What string
	// Places are paths: with ~/ in each home directory, else absolute. An element may be *,
	// which stands for every entry of a directory.
	Places []string
	// WithCredential is set if the places are settings that are hidden only where they hold
	// a credential, because programs need the others.
	WithCredential bool
	// RootOnly is set if only root's sandboxes do not see the places: an ordinary user cannot read them anyway.
	RootOnly bool
}

// SelfTest are hidden places in a home directory that no program uses. A self-test makes a file in one
// of them after the start of a sandbox, and tries to read it inside. A self-test takes two, and several
// self-tests may run at once.
var SelfTest = [...]string{
	selfTest + "1", selfTest + "2", selfTest + "3", selfTest + "4", selfTest + "5", selfTest + "6", selfTest + "7", selfTest + "8",
	selfTest + "9", selfTest + "10", selfTest + "11", selfTest + "12", selfTest + "13", selfTest + "14", selfTest + "15", selfTest + "16",
}

const selfTest = ".snapfs-self-test/"

// ShadowFile is the file of the host with the hashes of the accounts' passwords (shadow(5)). A policy that exposes it
// exposes all of the files that have such hashes, because useradd and passwd write several of them.
const ShadowFile = "/etc/shadow"

// HashFiles are the files of the host with hashes of passwords. Root's sandboxes do not see them. They see the first
// two, which su and PAM read, without the hashes.
var HashFiles = []string{ShadowFile, "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/security/opasswd"}

// LogDir is the directory of the host with the machine's logs, which snapfs hides from sandboxes.
const LogDir = "/var/log"

// Rows are all places that snapfs hides from sandboxes, by program: first those in home
// directories, then those of the machine.
//
// Directories in which an upgrade of a package must be able to write are not hidden as a whole: a database and a log
// directory are hidden entry by entry.
var Rows = []Row{
	// Keys and passwords.
	{Program: "OpenSSH, PuTTY", What: "keys", Places: []string{"~/.ssh", "~/.ssh2", "~/.putty"}},
	{Program: "GnuPG, age, sops, PKCS #11", What: "keys", Places: []string{"~/.gnupg", "~/.age", "~/.config/age", "~/.config/sops", "~/.pki"}},
	{Program: "GNOME Keyring, KWallet, Python keyring", What: "keyrings", Places: []string{
		"~/.local/share/keyrings", "~/.local/share/kwalletd", "~/.local/share/python_keyring", "~/.config/goa-1.0",
	}},
	{Program: "password managers", What: "vaults and sessions", Places: []string{
		"~/.password-store", "~/.local/share/gopass", "~/.config/gopass", "~/.config/op", "~/.config/1Password", "~/.config/Bitwarden",
		"~/.config/Bitwarden CLI", "~/.config/rbw", "~/.local/share/rbw", "~/.config/keepassxc", "~/.lpass", "~/.config/enpass", "~/.authy", "~/.config/ente",
		"~/snap/bitwarden",
	}},
	{Program: "Keybase, YubiKey, Vault, Android, Ollama", What: "keys and tokens", Places: []string{
		"~/.config/keybase", "~/.config/Yubico", "~/.vault-token", "~/.android/adbkey", "~/.ollama/id_ed25519",
	}},
	{Program: "secret stores", What: "tokens", Places: []string{"~/.doppler", "~/.infisical", "~/.step", "~/.acme.sh", "~/.local/share/mkcert", "~/.local/share/caddy", "~/.tsh", "~/.teleport"}},

	// Clouds, hosting and clusters.
	{Program: "AWS, Azure, Google Cloud", What: "credentials", Places: []string{
		"~/.aws", "~/.aws-vault", "~/.saml2aws", "~/.granted", "~/.azure", "~/.azure-devops", "~/.config/gcloud", "~/.boto", "~/.s3cfg", "~/.passwd-s3fs",
	}},
	{Program: "other clouds", What: "credentials", Places: []string{
		"~/.oci", "~/.aliyun", "~/.bluemix", "~/.config/doctl", "~/.config/hcloud", "~/.config/linode-cli", "~/.config/scw", "~/.config/openstack/clouds.yaml", "~/.ovh.conf",
	}},
	{Program: "hosting", What: "tokens", Places: []string{
		"~/.config/heroku", "~/.config/netlify", "~/.local/share/com.vercel.cli", "~/.config/com.vercel.cli", "~/.vercel", "~/.config/.wrangler", "~/.wrangler/config",
		"~/.fly/config.yml", "~/.railway", "~/.supabase", "~/.config/neonctl", "~/.config/turso", "~/.config/planetscale",
	}},
	{Program: "Kubernetes, Helm, Argo CD, Talos, Rancher", What: "cluster credentials", Places: []string{
		"~/.kube", "~/.minikube", "~/.config/helm/registry", "~/.config/helm/repositories.yaml", "~/.config/argocd", "~/.argocd", "~/.talos", "~/.rancher",
	}},
	{Program: "Docker, Podman", What: "registry credentials", Places: []string{
		"~/.docker/config.json", "~/.docker/contexts", "~/.docker/machine", "~/.docker/mcp", "~/.docker/desktop", "~/.dockercfg", "~/.config/containers/auth.json",
		"~/.config/containers/podman-connections.json", "~/.local/share/containers/storage/secrets", "~/.regctl",
	}},
	{Program: "Terraform, Pulumi, Infracost", What: "tokens", Places: []string{"~/.terraform.d/credentials.tfrc.json", "~/.terraformrc", "~/.pulumi/credentials.json", "~/.config/infracost"}},
	{Program: "tunnels", What: "tokens", Places: []string{"~/.config/ngrok", "~/.ngrok2", "~/.cloudflared"}},
	{Program: "services", What: "tokens", Places: []string{
		"~/.config/stripe", "~/.twilio-cli", "~/.expo", "~/.travis", "~/.semgrep/settings.yml", "~/.src-config.json", "~/.config/nats", "~/.local/share/nats", "~/.gitlab-runner", "~/.config/sfdx", "~/.sfdx", "~/.sf", "~/.newrelic", "~/.sentryclirc", "~/.circleci/cli.yml", "~/.config/circleci",
	}},
	{Program: "copies and backups", What: "passwords", Places: []string{
		"~/.config/rclone", "~/.rclone.conf", "~/.mc/config.json", "~/.config/mc", "~/.config/borg", "~/.kopia", "~/.config/syncthing", "~/.local/state/syncthing",
	}},

	// Hosts of code and of packages.
	{Program: "Git and its hosts", What: "credentials", Places: []string{
		"~/.config/gh", "~/.config/hub", "~/.config/glab-cli", "~/.config/tea", "~/.config/git/credentials", "~/.git-credentials", "~/.cache/git/credential",
		"~/.gitcookies", "~/.gcm", "~/.config/git-credential-manager", "~/.subversion/auth", "~/.cvspass",
	}},
	{Program: "curl, ftp", What: "passwords", Places: []string{"~/.netrc", "~/_netrc", "~/.authinfo", "~/.authinfo.gpg"}},
	{Program: "npm, Yarn, pnpm", What: "tokens", Places: []string{"~/.yarnrc", "~/.yarnrc.yml", "~/.config/configstore", "~/.config/pnpm/auth.ini"}},
	{Program: "Python", What: "tokens", Places: []string{"~/.pypirc", "~/.config/pypoetry/auth.toml", "~/.condarc", "~/.local/share/uv/credentials"}},
	{Program: "Rust, Ruby, PHP", What: "tokens", Places: []string{
		"~/.cargo/credentials", "~/.cargo/credentials.toml", "~/.gem/credentials", "~/.local/share/gem/credentials", "~/.bundle/config",
		"~/.composer/auth.json", "~/.config/composer/auth.json",
	}},
	{Program: "Maven, Gradle, Ivy, sbt, NuGet", What: "passwords", Places: []string{
		"~/.m2/settings.xml", "~/.m2/settings-security.xml", "~/.gradle/gradle.properties", "~/.ivy2/.credentials", "~/.sbt/.credentials",
		"~/.nuget/NuGet/NuGet.Config", "~/.microsoft/usersecrets",
	}},
	{Program: "Hex, Dart, Conan", What: "tokens", Places: []string{
		"~/.hex/hex.config", "~/.config/hex", "~/.pub-cache/credentials.json", "~/.config/dart/pub-credentials.json", "~/.conan2/credentials.json",
	}},

	// Coding agents and editors.
	{Program: "Claude", What: "sessions and keys", Places: []string{
		"~/.claude", "~/.claude.json", "~/.claude.json.backup", "~/.config/claude", "~/.config/Claude/claude_desktop_config.json",
	}},
	{Program: "other coding agents", What: "sessions and keys", Places: []string{
		"~/.codex", "~/.gemini", "~/.qwen", "~/.factory", "~/.augment", "~/.kiro", "~/.copilot", "~/.grok", "~/.openclaw", "~/.pi/agent/auth.json", "~/.cline", "~/.roo",
		"~/.local/share/opencode/auth.json", "~/.local/share/opencode/mcp-auth.json", "~/.config/goose/secrets.yaml", "~/.aider/oauth-keys.env", "~/.local/share/amp/secrets.json", "~/.config/crush",
		"~/.local/share/crush", "~/.local/share/amazon-q", "~/.local/share/kiro-cli", "~/.config/github-copilot", "~/.mcp-auth",
	}},
	{Program: "language models", What: "keys", Places: []string{"~/.config/io.datasette.llm/keys.json", "~/.config/aichat", "~/.config/mods"}},
	{Program: "VS Code, Cursor, Windsurf", What: "sessions", Places: []string{
		"~/.config/cursor/auth.json", "~/.cursor/mcp.json", "~/.config/Code/User/globalStorage/state.vscdb", "~/.config/VSCodium/User/globalStorage/state.vscdb",
		"~/.config/Cursor/User/globalStorage/state.vscdb", "~/.config/Code/User/mcp.json", "~/.vscode-server/data/User/globalStorage", "~/.codeium", "~/.windsurf",
		"~/.continue", "~/snap/code",
	}},
	{Program: "JetBrains", What: "passwords", Places: []string{"~/.config/JetBrains/*/c.kdbx", "~/.config/JetBrains/*/c.pwd"}},

	// Data, databases, mail and other machines.
	{Program: "Hugging Face, Kaggle", What: "tokens", Places: []string{
		"~/.huggingface/token", "~/.cache/huggingface/token", "~/.cache/huggingface/stored_tokens", "~/.kaggle/kaggle.json", "~/.config/kaggle",
	}},
	{Program: "data platforms", What: "tokens", Places: []string{
		"~/.databrickscfg", "~/.dbt/profiles.yml", "~/.snowflake", "~/.snowsql", "~/.modal.toml", "~/.streamlit/secrets.toml", "~/.mlflow/credentials",
		"~/.lightning/credentials.json", "~/.runpod",
	}},
	{Program: "Jupyter", What: "passwords and tokens", Places: []string{
		"~/.jupyter/jupyter_server_config.json", "~/.jupyter/jupyter_notebook_config.json", "~/.local/share/jupyter/runtime",
	}},
	{Program: "database clients", What: "passwords", Places: []string{
		"~/.pgpass", "~/.my.cnf", "~/.mylogin.cnf", "~/.mongorc.js", "~/.mongodb/mongosh", "~/.usqlpass", "~/.influxdbv2", "~/.duckdb/stored_secrets",
		"~/.cassandra/credentials", "~/.cqlshrc", "~/.config/TablePlus", "~/.local/share/DBeaverData/*/*/.dbeaver/credentials-config.json",
	}},
	{Program: "mail", What: "passwords and mail", Places: []string{
		"~/.msmtprc", "~/.config/msmtp", "~/.muttrc", "~/.mbsyncrc", "~/.config/isyncrc", "~/.fetchmailrc", "~/.offlineimaprc", "~/.mutt", "~/.config/neomutt", "~/.config/aerc",
		"~/.config/evolution", "~/.local/share/evolution", "~/Maildir",
	}},
	{Program: "other machines", What: "passwords", Places: []string{
		"~/.smbcredentials", "~/.vnc/passwd", "~/.config/remmina", "~/.local/share/remmina", "~/.config/filezilla", "~/.Xauthority", "~/.ICEauthority",
	}},

	// Sessions of browsers and messengers, wallets, and snapfs itself.
	{Program: "Firefox and its kin", What: "sessions and passwords", Places: []string{
		"~/.mozilla", "~/.config/mozilla/firefox", "~/snap/firefox", "~/.zen", "~/.librewolf", "~/.waterfox", "~/.floorp",
	}},
	{Program: "Chromium and its kin", What: "sessions and passwords", Places: []string{
		"~/.config/google-chrome", "~/.config/google-chrome-beta", "~/.config/google-chrome-unstable", "~/.config/chromium", "~/snap/chromium", "~/.config/BraveSoftware",
		"~/.config/microsoft-edge", "~/.config/vivaldi", "~/.config/opera", "~/.config/net.imput.helium",
	}},
	{Program: "other browsers", What: "sessions", Places: []string{"~/.local/share/qutebrowser", "~/.config/epiphany", "~/.local/share/epiphany"}},
	{Program: "Thunderbird, Flatpak applications", What: "mail and sessions", Places: []string{"~/.thunderbird", "~/snap/thunderbird", "~/.var/app"}},
	{Program: "messengers", What: "sessions", Places: []string{
		"~/.config/Slack", "~/snap/slack", "~/.config/discord", "~/.config/Signal", "~/.config/Element", "~/.local/share/TelegramDesktop", "~/.config/weechat",
		"~/.weechat", "~/.purple", "~/.config/teams-for-linux", "~/.config/Mattermost",
	}},
	{Program: "wallets", What: "money", Places: []string{
		"~/.bitcoin", "~/.electrum", "~/.ethereum", "~/.config/solana", "~/.foundry/keystores", "~/.sui", "~/.aptos", "~/.near-credentials", "~/.config/Exodus", "~/.monero",
	}},
	{Program: "snapfs of any user", What: "all that its sandboxes hold", Places: []string{"~/.local/state/snapfs", "~/" + catalog.Registry, "/var/lib/snapfs"}},
	{Program: "self-test of snapfs", What: "what it tries to read", Places: []string{
		"~/" + selfTest + "1", "~/" + selfTest + "2", "~/" + selfTest + "3", "~/" + selfTest + "4",
		"~/" + selfTest + "5", "~/" + selfTest + "6", "~/" + selfTest + "7", "~/" + selfTest + "8",
		"~/" + selfTest + "9", "~/" + selfTest + "10", "~/" + selfTest + "11", "~/" + selfTest + "12",
		"~/" + selfTest + "13", "~/" + selfTest + "14", "~/" + selfTest + "15", "~/" + selfTest + "16",
	}},

	// Histories.
	{Program: "shells", What: "what was typed", Places: []string{
		"~/.bash_history", "~/.local/state/bash", "~/.zsh_history", "~/.histfile", "~/.zsh_sessions", "~/.local/state/zsh/history", "~/.local/share/fish/fish_history",
		"~/.config/nushell/history.txt", "~/.config/nushell/history.sqlite3", "~/.local/share/powershell/PSReadLine", "~/.local/share/atuin", "~/.lesshst",
		"~/.tmux/resurrect", "~/.local/share/tmux/resurrect",
	}},
	{Program: "interpreters", What: "what was typed", Places: []string{
		"~/.python_history", "~/.local/state/python_history", "~/.node_repl_history", "~/.irb_history", "~/.Rhistory",
	}},
	{Program: "database clients", What: "what was typed", Places: []string{
		"~/.psql_history", "~/.mysql_history", "~/.mariadb_history", "~/.sqlite_history", "~/.rediscli_history", "~/.duckdb_history",
	}},

	// Settings that may hold a credential.
	{Program: "Git, npm, pnpm, Bun", What: "settings", WithCredential: true, Places: []string{"~/.gitconfig", "~/.config/git/config", "~/.npmrc", "~/.config/pnpm/rc", "~/.bunfig.toml"}},
	{Program: "pip, uv, Cargo, NuGet, Gradle, Nix", What: "settings", WithCredential: true, Places: []string{
		"~/.config/pip/pip.conf", "~/.pip/pip.conf", "~/.config/uv/uv.toml", "~/.cargo/config.toml", "~/.config/NuGet/NuGet.Config", "~/.gradle/init.gradle", "~/.config/nix/nix.conf",
	}},
	{Program: "aider", What: "settings", WithCredential: true, Places: []string{"~/.aider.conf.yml"}},
	{Program: "curl, wget, home directory", What: "settings, in which anything may be a credential", Places: []string{"~/.curlrc", "~/.wgetrc", "~/.env", "~/.envrc"}},
	{Program: "the machine", What: "settings", WithCredential: true, Places: []string{"/etc/fstab", "/etc/environment", "/etc/docker/daemon.json", "/etc/grafana/grafana.ini"}},

	// The machine.
	{Program: "accounts, in root's sandboxes", What: "hashes of passwords", Places: HashFiles, RootOnly: true},
	{Program: "SSH servers", What: "host keys", Places: []string{
		"/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_dsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key", "/etc/dropbear/dropbear_rsa_host_key",
		"/etc/dropbear/dropbear_ecdsa_host_key", "/etc/dropbear/dropbear_ed25519_host_key",
	}},
	{Program: "TLS certificates", What: "keys", Places: []string{"/etc/ssl/private", "/etc/pki/tls/private", "/etc/letsencrypt", "/var/lib/caddy"}},
	{Program: "systemd, disks, boot", What: "keys", Places: []string{
		"/etc/credstore", "/etc/credstore.encrypted", "/etc/cryptsetup-keys.d", "/etc/luks", "/boot/grub/user.cfg", "/var/lib/systemd/credential.secret", "/var/lib/shim-signed/mok", "/var/lib/dkms/mok.key",
	}},
	{Program: "networks", What: "keys and passwords", Places: []string{
		"/etc/NetworkManager/system-connections", "/var/lib/NetworkManager/secret_key", "/etc/wpa_supplicant/wpa_supplicant.conf", "/etc/netplan", "/etc/iwd", "/var/lib/iwd",
		"/var/lib/bluetooth", "/etc/ppp/chap-secrets", "/etc/ppp/pap-secrets",
	}},
	{Program: "private networks", What: "keys", Places: []string{
		"/etc/wireguard", "/etc/openvpn/client", "/etc/openvpn/server", "/etc/ipsec.secrets", "/etc/ipsec.d/private", "/etc/swanctl/private", "/etc/tinc", "/etc/nebula",
		"/var/lib/tailscale", "/var/lib/zerotier-one", "/etc/cloudflared",
	}},
	{Program: "directory services", What: "keys and passwords", Places: []string{
		"/etc/krb5.keytab", "/etc/ldap.secret", "/etc/pam_ldap.secret", "/etc/libnss-ldap.secret", "/etc/sssd/sssd.conf", "/var/lib/sss/secrets", "/var/lib/samba/private",
	}},
	{Program: "clusters", What: "keys", Places: []string{
		"/etc/kubernetes", "/var/lib/kubelet", "/etc/rancher", "/var/lib/rancher", "/etc/munge/munge.key", "/etc/corosync/authkey", "/etc/pacemaker/authkey",
		"/etc/ceph/ceph.client.admin.keyring", "/etc/iscsi/iscsid.conf",
	}},
	{Program: "apt, rclone, davfs, Samba, Boto", What: "passwords", Places: []string{
		"/etc/apt/auth.conf", "/etc/apt/auth.conf.d", "/etc/rclone", "/etc/davfs2/secrets", "/etc/smbcredentials", "/etc/boto.cfg",
	}},
	{Program: "cloud machines", What: "start-up data with keys", Places: []string{"/var/lib/cloud/instances", "/var/lib/cloud/data", "/var/lib/waagent"}},
	{Program: "memory on disk", What: "all that programs held", Places: []string{"/swapfile", "/swap.img", "/swap", "/var/swap", "/var/swapfile", "/var/crash", "/var/lib/systemd/coredump"}},
	{Program: "cron, backups", What: "commands and copies of other files", Places: []string{"/var/spool/cron/crontabs/*", "/var/backups/*", "/var/spool/cron/atjobs/*", "/var/mail/*"}},
	{Program: "logs", What: "what programs wrote, but for those of package installation and logins", Places: []string{"/var/log/*", "/var/log/*/*"}},

	// Services of the machine.
	{Program: "PostgreSQL", What: "databases", Places: []string{"/var/lib/postgresql/*/*", "/var/lib/pgsql/data/*", "/var/lib/pgsql/*/data"}},
	{Program: "MySQL, MariaDB", What: "databases", Places: []string{"/etc/mysql/debian.cnf", "/var/lib/mysql/*"}},
	{Program: "Redis, MongoDB, other databases", What: "databases", Places: []string{
		"/var/lib/redis/*", "/var/lib/valkey/*", "/var/lib/mongodb/*", "/var/lib/mongo/*", "/var/lib/cassandra/*", "/var/lib/influxdb/*", "/var/lib/elasticsearch/*",
		"/var/lib/clickhouse/*", "/var/lib/grafana/grafana.db",
	}},
	{Program: "containers and virtual machines", What: "images, volumes and keys", Places: []string{
		"/etc/docker/key.json", "/var/lib/docker/*", "/var/lib/containerd/*", "/var/lib/libvirt/images/*", "/var/lib/libvirt/qemu/*",
	}},
	{Program: "GitLab, Jenkins, Vault", What: "keys, code and secrets", Places: []string{
		"/etc/gitlab/gitlab-secrets.json", "/var/opt/gitlab/*", "/etc/gitlab-runner/config.toml", "/var/lib/jenkins/*", "/var/lib/vault/*",
	}},
	{Program: "mail, name and web servers", What: "passwords", Places: []string{
		"/etc/postfix/sasl_passwd", "/etc/postfix/sasl_passwd.db", "/etc/msmtprc", "/etc/ssmtp/ssmtp.conf", "/etc/hostapd/hostapd.conf", "/etc/exim4/passwd.client", "/etc/dovecot/private", "/etc/rndc.key", "/etc/bind/rndc.key", "/etc/nginx/.htpasswd",
	}},
}
