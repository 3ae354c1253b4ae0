-- Destroys each dataset that has the mark it is said to have: pairs of a name and a
-- mark. Answers with the numbers of the errors, by name.
local argv = (...)["argv"]
local failed = {}
for i = 1, #argv, 2 do
	local name, want = argv[i], argv[i + 1]
	if zfs.exists(name) then
		local mark, at = zfs.get_prop(name, "snapfs:mark")
		if mark == want and at == name then
			local errno
			if string.find(name, "@", 1, true) then
				errno = zfs.sync.destroy{name, defer = true}
			else
				errno = zfs.sync.destroy(name)
			end
			if errno ~= 0 then failed[name] = errno end
		end
	end
end
return failed
