-- Destroys each dataset that has the expected mark. Three arguments for each dataset: its name, its
-- mark, and the dataset that was captured. Returns, by name, the errno of each failure, the datasets
-- that do not exist, and those of which the captured dataset does not exist either.
local argv = (...)["argv"]
local failed, missing, moved = {}, {}, {}
for i = 1, #argv, 3 do
	local name, want, source = argv[i], argv[i + 1], argv[i + 2]
	if zfs.exists(name) then
		local mark, at = zfs.get_prop(name, "snapfs:mark")
		if mark == want and at == name then
			local errno
			if not string.find(name, "@", 1, true) then
				errno = zfs.sync.destroy(name)
			elseif zfs.get_prop(name, "userrefs") > 0 then
				errno = 16 -- EBUSY: a deferred destruction would wait for a release that may never come
			else
				errno = zfs.sync.destroy{name, defer = true}
			end
			if errno ~= 0 then failed[name] = errno end
		end
	elseif source == "" or zfs.exists(source) then
		missing[name] = true
	else
		moved[name] = true
	end
end
return {failed = failed, missing = missing, moved = moved}
