-- Dally in slurmctld: marks and holds GPU jobs (mode "hold"), or gives them a switch timer (mode "hint").
--
-- Lives beside slurm.conf, with dally_site.lua, which `dally slurm install` writes and which is read anew for
-- every job. A site with a job_submit.lua of its own keeps this one elsewhere and begins its own with
--     dofile("/etc/slurm/dally/job_submit.lua")
--     local dally_submit, dally_modify = slurm_job_submit, slurm_job_modify
-- and calls these two first, going on when they return slurm.SUCCESS.
--
-- Whatever goes wrong in here is logged and the job goes in as if Dally were not there.

local MARK = "dally:"
local HELD, NOT_HELD = MARK .. "held=1", MARK .. "held=0"
local HERE = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local GPU_FIELDS = { "tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket", "gres" }
local NODE_FIELDS = { "prefer", "batch_features" }
local SWITCH_WAIT_S = 300
local TOPO = 4 -- in job.shared: --exclusive=topo
local FENCE = "dally_" -- what the names of the controller's reservations begin with

local function text(pattern, longest)
  return function(value) return value:match(pattern) and #value <= longest end
end

local function whole(most)
  return function(value) return value:match("^%d+$") and #value <= 9 and tonumber(value) <= most end
end

local function one_of(...)
  local words = { ... }
  return function(value)
    for _, word in ipairs(words) do
      if value == word then return true end
    end
    return false
  end
end

local VALID = { -- as in slurm_plugin/request.py
  model = text("^[%w_.:+=,-]+$", 256), plan = text("^[%l%d=,-]+$", 256), batch = whole(999999999),
  tag = text("^[%da-f]+$", 32),
  signal = one_of("USR1", "USR2", "TERM", "INT", "HUP", "QUIT", "ALRM", "URG", "CONT"),
  grace_s = whole(86400), min_gpus = whole(1000000), max_gpus = whole(1000000), max_copies = whole(1000),
  nodes = text("^[%w_.,%[%]-]+$", 1024), switches = whole(1000000), switch_wait_s = whole(SWITCH_WAIT_S),
  progress = text("^/[^%c]+$", 512), companion_of = text("^%d+$", 10),
  held = one_of("0", "1"), plain = one_of("0", "1"),
}

math.randomseed(os.time() + math.floor(os.clock() * 1e6))

local function site()
  return assert(dofile(HERE .. "dally_site.lua"), "dally_site.lua returns nothing")
end

-- A numeric field; nil where Slurm means "not given" or "infinite", in 16 or 32 bits.
local function number(value)
  if type(value) ~= "number" or value == 0xfffe or value == 0xffff or value >= 0xfffffffe then return nil end
  return value
end

-- The text behind the mark and the user's own words; nil and all of it where there is no mark. Further marks
-- behind the first are nobody's words: without the first they would count.
local function split(comment)
  local said, words_at = nil, 1
  comment = comment or ""
  while comment:sub(words_at, words_at + #MARK - 1) == MARK do
    local mark, next_at = comment:match("^(%S*)%s*()", words_at)
    said, words_at = said or mark:sub(#MARK + 1), next_at
  end
  return said, comment:sub(words_at)
end

local function join(mark, words)
  return words == "" and mark or mark .. " " .. words
end

-- The fields of a mark, or nil and what is wrong with it. Fields of a newer wrapper are let through.
local function fields(said)
  local found = {}
  for pair in said:gmatch("[^&]+") do
    local name, value = pair:match("^([%l_]+)=(.*)$")
    if not name then return nil, pair end
    value = value:gsub("+", " "):gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
    local valid = VALID[name]
    if valid and not valid(value) then return nil, pair end
    found[name] = value
  end
  return found
end

local function is_gpu(tres)
  local name = tres:gsub("^gres[:/]", "")
  return name:match("^gpu$") or (name:match("^gpu[:=]") and not name:match("[:=]0$"))
end

-- A fence keeps nodes for one job about to start; its user's other jobs must not slip in.
local function is_fenced(job)
  for name in (job.reservation or ""):gmatch("[^,]+") do
    if name:sub(1, #FENCE) == FENCE then return true end
  end
  return false
end

local function asks_for_gpus(job)
  for _, field in ipairs(GPU_FIELDS) do
    for tres in (job[field] or ""):gmatch("[^,]+") do
      if is_gpu(tres) then return true end
    end
  end
  return false
end

-- Without bit operators, which Lua 5.1 lacks.
local function has_flag(flags, flag)
  return type(flags) == "number" and flag ~= nil and flags < 2 ^ 53 and math.floor(flags / flag) % 2 == 1
end

-- Whether a constraint relates nodes to each other, otherwise than by one `[rack1|rack2]`.
local function is_related(features)
  local rest, count = features:gsub("%[[^%[%]*&(),]+%]", "")
  return count > 1 or rest:find("[%[%]*]") ~= nil
end

-- The same as in slurm_plugin/submit/submission.py: what a controller that chooses the nodes cannot honour.
local function fixed_by(job)
  for _, field in ipairs(NODE_FIELDS) do
    if (job[field] or "") ~= "" then return field end
  end
  if (job.req_nodes or "") ~= "" and not VALID.nodes(job.req_nodes) then return "req_nodes" end
  if is_related(job.features or "") then return "features" end
  local in_segments = (number(job.segment_size) or 0) > 0
  for _, flag in ipairs { "CONSOLIDATE_SEGMENTS", "SPREAD_SEGMENTS" } do
    if has_flag(job.bitflags, slurm[flag]) and not in_segments then return flag end
  end
  if job.contiguous == 1 then return "contiguous" end
  if has_flag(job.bitflags, slurm.SPREAD_JOB) then return "spread-job" end
  local shared = number(job.shared) -- 0 is --exclusive, 1 --oversubscribe, what is more --exclusive=user and the like
  local whole_blocks = shared == TOPO and job.segment_size ~= nil -- from Slurm 25.11 on, with a node list
  if shared and shared > 1 and not whole_blocks then return "exclusive" end
  return nil
end

-- The partitions that a job names, or the default one.
local function partitions_of(job, part_list)
  local names = job.partition
  if not names or names == "" then
    for name, part in pairs(part_list) do
      if part.flag_default == 1 or part.flag_default == true then names = name end
    end
  end
  return names or ""
end

local function is_ours(partitions, job, part_list)
  local names = partitions_of(job, part_list)
  for name in names:gmatch("[^,]+") do
    if not partitions[name] then return false end
  end
  return names ~= ""
end

-- The longest time limit, minutes, of the partitions, if the job asks for more than each of them allows.
-- Slurm would accept the job held, and start it nowhere.
local function exceeded_minutes(job, part_list)
  local minutes, longest = number(job.time_limit), 0
  if not minutes then return nil end
  for name in partitions_of(job, part_list):gmatch("[^,]+") do
    local most = part_list[name] and number(part_list[name].max_time)
    if not most then return nil end
    longest = math.max(longest, most)
  end
  return minutes > longest and longest or nil
end

local function counts_gpus(tres_list)
  for tres in (tres_list or ""):gmatch("[^,]+") do
    if is_gpu(tres) then return tonumber(tres:match("[:=](%d+)$")) or 1 end
  end
end

-- Whether each node gives the job as many GPUs; as in slurm_plugin/submit/submission.py.
local function has_even_shares(job)
  if counts_gpus(job.tres_per_node) or counts_gpus(job.gres) then return true end
  local by_task, nodes = counts_gpus(job.tres_per_task), number(job.min_nodes) or 1
  if by_task and (number(job.ntasks_per_node) or 0) > 0 then return true end
  local count = by_task and number(job.num_tasks) or counts_gpus(job.tres_per_job)
  return count ~= nil and nodes > 1 and count % nodes == 0
end

local function is_wanted(settings, job, part_list)
  local uneven = (number(job.segment_size) or 0) > 0 and not has_even_shares(job) -- Slurm divides by segments
  return number(job.het_job_offset) == nil and not fixed_by(job) and not uneven
    and is_ours(settings.partitions, job, part_list)
    and (asks_for_gpus(job) or job.shared == 0) -- with --exclusive Slurm gives whole nodes with their GPUs
end

local function encoded(value)
  return (value:gsub("[^%w_.-]", function(char) return string.format("%%%02X", char:byte()) end))
end

-- What a job asks for that the controller sees to, and then no longer shows in Slurm.
local function keep_nodes(job, asked)
  local switches = number(job.req_switch)
  asked.nodes = (job.req_nodes or "") ~= "" and job.req_nodes or nil
  asked.switches, asked.switch_wait_s = nil, nil
  if switches and switches > 0 then
    local wait_s = number(job.wait4switch) or SWITCH_WAIT_S
    asked.switches = tostring(math.floor(switches))
    asked.switch_wait_s = tostring(math.floor(math.min(wait_s, SWITCH_WAIT_S)))
  end
  if (job.script or "") == "" then -- salloc or srun: it cannot be requeued
    asked.signal, asked.grace_s, asked.min_gpus, asked.max_gpus, asked.max_copies = nil, nil, nil, nil, nil
  end
end

-- Mode "hold": the mark goes where users cannot write, and the controller decides when the job starts.
local function hold(job, asked, words)
  keep_nodes(job, asked)
  asked.tag = asked.tag or string.format("%04x%04x", math.random(0, 0xffff), math.random(0, 0xffff))
  local said = {}
  for name, value in pairs(asked) do
    if name ~= "held" then said[#said + 1] = name .. "=" .. encoded(value) end
  end
  table.sort(said)
  job.admin_comment = MARK .. table.concat(said, "&")
  job.comment = asked.held == "1" and join(HELD, words) or words
  job.priority = 0
  -- Without it, topology/block starts the job only in as few blocks as it needs; topology/tree ignores it.
  -- Before Slurm 25.11, which takes no node list with a segment, there is no such field.
  if job.segment_size == 0 and has_even_shares(job) then job.segment_size = 1 end
end

-- Mode "hint": waiting w seconds for one leaf switch saves at most (slowdown - 1) x run time. Under topology/block
-- Slurm waits for as few blocks as it can, without end; a segment of one node frees jobs that lose nothing elsewhere.
local function hint(settings, job, model)
  local slowdown = settings.slowdowns[model or ""]
  if not slowdown then return end
  local same = slowdown < (settings.same or 1)
  if same and job.segment_size == 0 and has_even_shares(job) then job.segment_size = 1 end
  local minutes = number(job.time_limit)
  local run_s = minutes and minutes * 60 or settings.default_run_s
  local gain_s = (slowdown - 1) * run_s
  local wait_s = math.floor(math.min(gain_s * settings.share, settings.longest_s))
  if wait_s >= 1 then
    job.req_switch = 1
    job.wait4switch = wait_s
  end
end

-- A job that Dally does not hold: its mark goes, and the hold of dally-sbatch with it.
local function let_pass(job, asked, words)
  job.comment = words
  if asked.held ~= "1" and asked.plain ~= "1" then job.priority = slurm.NO_VAL end
end

local function submit(job, part_list)
  if (job.admin_comment or ""):sub(1, #MARK) == MARK then job.admin_comment = "" end
  local said, words = split(job.comment)
  local asked, wrong = fields(said or "")
  if not asked then
    slurm.log_user("dally: comment with %s is no request to Dally; use dally-sbatch", wrong:sub(1, 60))
    return slurm.ERROR
  end
  local settings = site()
  if is_fenced(job) and job.user_id ~= 0 then
    slurm.log_user("dally: reservations whose names begin with %s are not for users", FENCE)
    return slurm.ERROR
  end
  local wanted = asked.plain ~= "1" and is_wanted(settings, job, part_list)
  local exempt = job.user_id == 0 or settings.exempt[job.user_id]
  if wanted and settings.mode == "hold" and (said or not exempt) then
    local most = exceeded_minutes(job, part_list)
    if most then
      slurm.log_user("dally: the job asks for %d minutes, and partition %s allows %d at most (PartitionTimeLimit)",
        job.time_limit, partitions_of(job, part_list), most)
      return slurm.ERROR
    end
    if not said and job.priority == 0 then asked.held = "1" end
    hold(job, asked, words)
    return slurm.SUCCESS
  end
  local bound = (job.req_nodes or "") ~= "" or (number(job.req_switch) or 0) > 0
  if wanted and settings.mode == "hint" and not bound then hint(settings, job, asked.model) end
  if said then let_pass(job, asked, words) end
  return slurm.SUCCESS
end

-- What an ordinary user may not change on a job that Dally places: what would start it elsewhere, or past
-- Dally. The rest (time limit, size, begin time, dependency, ...) is his: the controller reads it anew.
local function forbidden(settings, job, held, part_list)
  local priority = job.priority or slurm.NO_VAL
  local releases = priority == slurm.INFINITE
  if (releases and not held) or (not releases and priority ~= 0 and priority ~= slurm.NO_VAL) then
    return "priority"
  end
  local moves = (job.partition or "") ~= ""
  if moves and not is_ours(settings.partitions, job, part_list) then return "partition" end
  if (job.req_nodes or "") ~= "" then return "req_nodes" end
  if number(job.req_switch) and job.req_switch > 0 then return "switches" end
  return fixed_by(job)
end

-- Users cannot write the admin comment, not even through here, so their hold is kept in the comment.
-- An empty comment would mean "no change".
local function keep_hold(job, record, held)
  if job.priority == 0 then
    held = true
  elseif job.priority == slurm.INFINITE then
    held = false
    job.priority = slurm.NO_VAL
  elseif not job.comment then
    return
  end
  local _, words = split(job.comment or record.comment)
  if held then
    job.comment = join(HELD, words)
  else
    job.comment = words ~= "" and words or NOT_HELD
  end
end

local function modify(job, record, part_list, uid)
  if uid == 0 then return slurm.SUCCESS end
  local settings = site()
  if settings.exempt[uid] then return slurm.SUCCESS end
  if is_fenced(job) then return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR end
  local mark = split(job.comment)
  local keeps_hold = mark and mark:match("^held=[01]$") and split(record.admin_comment)
  if mark and not keeps_hold then return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR end
  local ours = (record.admin_comment or ""):sub(1, #MARK) == MARK
  if settings.mode ~= "hold" or not ours then return slurm.SUCCESS end
  local held = split(record.comment) == "held=1"
  local field = forbidden(settings, job, held, part_list)
  if field then
    slurm.log_info("dally: uid %d may not change %s of JobId=%s", uid, field, tostring(record.job_id))
    return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR
  end
  keep_hold(job, record, held)
  return slurm.SUCCESS
end

local function guarded(what, act, ...)
  local fine, result = pcall(act, ...)
  if fine then return result end
  slurm.log_error("dally: %s: %s", what, tostring(result))
  return slurm.SUCCESS
end

function slurm_job_submit(job, part_list, submit_uid)
  return guarded("slurm_job_submit", submit, job, part_list)
end

function slurm_job_modify(job, record, part_list, modify_uid)
  return guarded("slurm_job_modify", modify, job, record, part_list, modify_uid)
end

return slurm.SUCCESS
