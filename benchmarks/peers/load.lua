-- Posts the lines of a file in turn, and ends with one line of figures.
local bodies, number = {}, 0

function init(arguments)
  for line in io.lines(arguments[1]) do
    bodies[#bodies + 1] = line
  end
  number = math.random(#bodies)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
end

function request()
  number = number % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[number])
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "median_ms": %f, "p99_ms": %f, "bad_status": %d, "broken": %d, "late": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write, errors.timeout))
end
