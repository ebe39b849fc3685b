-- For BurstBufferType=burst_buffer/lua: a job asks for a file system of its nodes by a line of its script,
--
--     #BB_LUA covey stage_in=/home/ada/in:/in stage_out=/out:/home/ada/out mount=/tmp/work
--
-- The nodes are known only when the job starts, so prolog and epilog do the work, with BURST_BUFFER=yes in their
-- settings. Here lines are checked, so that sbatch refuses a wrong one at once.

local KNOWN = { stage_in = true, stage_out = true, mount = true }

local function wrong(word)
	local name, value = word:match("^([%w_]+)=(.+)$")
	if not name or not KNOWN[name] then
		return "covey does not know `" .. word .. "`: stage_in=SRC:DST, stage_out=SRC:DST, mount=DIR"
	end
	if name == "mount" then
		return value:sub(1, 1) ~= "/" and "covey: mount=DIR needs a path from the root" or nil
	end
	local from, to = value:match("^:?([^:]+):+(.+)$")
	if not from or from:sub(1, 1) ~= "/" or to:sub(1, 1) ~= "/" then
		return "covey: " .. name .. "=SRC:DST needs two paths from the root"
	end
end

function slurm_bb_job_process(job_script)
	local file, why = io.open(job_script, "r")
	if not file then
		return slurm.ERROR, "cannot read the script: " .. tostring(why)
	end
	for line in file:lines() do
		local words = line:match("^#BB_LUA%s+covey%f[%s%z](.*)$")
		for word in (words or ""):gmatch("%S+") do
			local message = wrong(word)
			if message then
				file:close()
				return slurm.ERROR, message
			end
		end
	end
	file:close()
	return slurm.SUCCESS
end

local function nothing_to_do()
	return slurm.SUCCESS, ""
end

function slurm_bb_pools()
	return slurm.SUCCESS
end

slurm_bb_job_teardown = nothing_to_do
slurm_bb_setup = nothing_to_do
slurm_bb_data_in = nothing_to_do
slurm_bb_test_data_in = nothing_to_do
slurm_bb_paths = nothing_to_do
slurm_bb_pre_run = nothing_to_do
slurm_bb_post_run = nothing_to_do
slurm_bb_data_out = nothing_to_do
slurm_bb_test_data_out = nothing_to_do
slurm_bb_get_status = nothing_to_do

function slurm_bb_real_size(job_id)
	return slurm.SUCCESS, 0
end
