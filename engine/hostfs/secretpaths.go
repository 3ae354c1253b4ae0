package hostfs

// secretsOfHome returns the paths in a home directory where programs store keys, tokens and
// input history, each according to the program's own documentation.
func secretsOfHome() []string {
	return []string{
		// Keys.
		".ssh", ".ssh2", ".putty", ".gnupg", ".age", ".config/age", ".config/sops", ".pki", ".local/share/keyrings", ".local/share/kwalletd",
		".password-store", ".local/share/gopass", ".config/gopass", ".config/op", ".config/Bitwarden", ".config/Bitwarden CLI", ".config/rbw",
		".config/keepassxc", ".config/keybase", ".config/Yubico", ".vault-token", ".android/adbkey", ".ollama/id_ed25519",
		// Clouds and clusters.
		".aws", ".azure", ".config/gcloud", ".boto", ".s3cfg", ".passwd-s3fs", ".oci", ".aliyun", ".bluemix", ".kube", ".minikube",
		".docker/config.json", ".docker/contexts", ".config/containers/auth.json", ".config/helm/registry", ".config/rclone", ".rclone.conf", ".mc/config.json",
		".config/doctl", ".config/hcloud", ".config/linode-cli", ".config/scw", ".config/heroku", ".config/netlify", ".local/share/com.vercel.cli",
		".config/.wrangler", ".wrangler/config", ".fly/config.yml", ".terraform.d/credentials.tfrc.json", ".terraformrc", ".pulumi/credentials.json",
		".config/ngrok", ".ngrok2", ".cloudflared", ".config/stripe",
		// Code and packages.
		".config/gh", ".config/hub", ".config/glab-cli", ".config/tea", ".config/git/credentials", ".git-credentials", ".cache/git/credential",
		".netrc", ".authinfo", ".authinfo.gpg", ".npmrc", ".yarnrc", ".yarnrc.yml", ".config/configstore", ".pypirc",
		".config/pypoetry/auth.toml", ".condarc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".local/share/gem/credentials",
		".bundle/config", ".composer/auth.json", ".config/composer/auth.json", ".m2/settings.xml", ".m2/settings-security.xml",
		".gradle/gradle.properties", ".ivy2/.credentials", ".sbt/.credentials", ".nuget/NuGet/NuGet.Config", ".hex/hex.config",
		".pub-cache/credentials.json", ".config/dart/pub-credentials.json", ".subversion/auth", ".cvspass",
		".huggingface/token", ".cache/huggingface/token", ".cache/huggingface/stored_tokens", ".kaggle/kaggle.json",
		".claude", ".claude.json", ".codex", ".gemini", ".config/github-copilot",
		// Databases, mail and other machines.
		".pgpass", ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".smbcredentials", ".msmtprc", ".config/msmtp", ".mbsyncrc", ".config/isyncrc",
		".fetchmailrc", ".offlineimaprc", ".vnc/passwd", ".config/remmina", ".local/share/remmina", ".config/filezilla", ".Xauthority", ".ICEauthority",
		// Browsers, mail readers and messengers: sessions are keys.
		".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi",
		".config/opera", ".var/app", "snap/firefox", "snap/chromium", "snap/thunderbird", ".config/Slack", ".config/discord", ".config/Signal",
		".config/Element", ".local/share/TelegramDesktop", ".config/weechat", ".weechat", ".purple",
		// Money.
		".bitcoin", ".electrum", ".ethereum", ".config/solana",
		// Input history.
		".bash_history", ".zsh_history", ".local/share/fish/fish_history", ".python_history", ".psql_history", ".mysql_history", ".mariadb_history",
		".sqlite_history", ".rediscli_history", ".node_repl_history", ".irb_history", ".config/nushell/history.txt", ".local/share/atuin",
	}
}

// secretsOfSystem returns the paths where a machine stores its own keys. /etc/shadow is not
// among them, because package installation replaces it when it adds a user; nor are
// directories with files of packages, which an upgrade must be able to write.
func secretsOfSystem() []string {
	return []string{
		"/boot/grub/user.cfg", "/var/lib/NetworkManager/secret_key", "/var/lib/bluetooth", "/var/lib/caddy", "/var/lib/cloud/instances", "/var/lib/iwd",
		"/var/lib/kubelet", "/var/lib/rancher", "/var/lib/samba/private", "/var/lib/sss/secrets", "/var/lib/systemd/coredump", "/var/lib/systemd/credential.secret",
		"/var/lib/tailscale", "/var/lib/zerotier-one", "/var/crash", "/swapfile", "/swap.img",
	}
}

// secretsOfEtc returns the secret paths in /etc, relative to it, which is listed once for all.
func secretsOfEtc() []string {
	return []string{
		"ssh/ssh_host_rsa_key", "ssh/ssh_host_dsa_key", "ssh/ssh_host_ecdsa_key", "ssh/ssh_host_ed25519_key", "dropbear/dropbear_rsa_host_key", "dropbear/dropbear_ecdsa_host_key", "dropbear/dropbear_ed25519_host_key",
		"ssl/private", "pki/tls/private", "letsencrypt", "credstore", "credstore.encrypted", "cryptsetup-keys.d", "luks",
		"NetworkManager/system-connections", "wpa_supplicant/wpa_supplicant.conf", "netplan", "iwd", "wireguard", "openvpn/client", "openvpn/server", "ipsec.secrets", "ipsec.d/private",
		"swanctl/private", "tinc", "nebula", "ppp/chap-secrets", "ppp/pap-secrets", "krb5.keytab", "ldap.secret", "pam_ldap.secret",
		"libnss-ldap.secret", "sssd/sssd.conf", "rndc.key", "bind/rndc.key", "munge/munge.key", "corosync/authkey", "pacemaker/authkey", "ceph/ceph.client.admin.keyring",
		"iscsi/iscsid.conf", "kubernetes", "rancher", "docker/key.json", "gitlab/gitlab-secrets.json", "gitlab-runner/config.toml",
		"cloudflared", "mysql/debian.cnf", "postfix/sasl_passwd", "postfix/sasl_passwd.db", "exim4/passwd.client", "dovecot/private",
		"apt/auth.conf", "apt/auth.conf.d", "boto.cfg", "davfs2/secrets", "smbcredentials", "rclone",
	}
}
