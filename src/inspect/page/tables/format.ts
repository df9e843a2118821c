/** Formats counts, shares, sizes and times. Unknown values are a dash. */

const dash = "–";

type Maybe = number | null | undefined;

function isKnown(value: Maybe): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

/** A whole number with thousands separators. */
export function formatCount(value: Maybe): string {
  return isKnown(value) ? Math.round(value).toLocaleString("en-GB") : dash;
}

/** A number with its significant digits; very large and very small ones with an exponent. */
export function formatNumber(value: Maybe, digits = 4): string {
  if (!isKnown(value)) return dash;
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e9))
    return value.toExponential(Math.max(0, digits - 2)).replace(/\.?0+e/, "e");
  if (magnitude >= 10 ** digits) return formatCount(value);
  return Number(value.toPrecision(digits)).toLocaleString("en-GB", { maximumSignificantDigits: digits });
}

export function formatPercent(share: Maybe, decimals = 1): string {
  return isKnown(share) ? `${(share * 100).toFixed(decimals)} %` : dash;
}

const sizes = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** With the largest unit that keeps it at 1 or more, like the command. */
export function formatBytes(count: Maybe): string {
  if (!isKnown(count)) return dash;
  let power = 0;
  while (power < sizes.length - 1 && Math.abs(count) >= 1024 ** (power + 1)) power++;
  return `${Number((count / 1024 ** power).toFixed(2))} ${sizes[power]}`;
}

/** Seconds as `1 d 2 h`, `3 h 04 min`, `2 min 05 s`, `12.3 s`, `4 ms` or `7 µs`: two units at most. */
export function formatDuration(seconds: Maybe): string {
  if (!isKnown(seconds)) return dash;
  if (seconds < 0) return `−${formatDuration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.9995e-3) return `${formatNumber(seconds * 1e6, 3)} µs`;
  if (seconds < 0.9995) return `${formatNumber(seconds * 1e3, 3)} ms`;
  if (seconds < 59.95) return `${formatNumber(seconds, 3)} s`;
  const whole = Math.round(seconds);
  const [days, hours] = [Math.floor(whole / 86_400), Math.floor(whole / 3600) % 24];
  const [minutes, rest] = [Math.floor(whole / 60) % 60, whole % 60];
  const two = (value: number): string => String(value).padStart(2, "0");
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${two(minutes)} min`;
  return `${minutes} min ${two(rest)} s`;
}

/** Bytes per microsecond as decimal GB/s, the unit of memory vendors. */
export function formatBandwidth(bytes: Maybe, microseconds: Maybe): string {
  if (!isKnown(bytes) || !isKnown(microseconds) || microseconds <= 0) return dash;
  return `${formatNumber(bytes / microseconds / 1000, 3)} GB/s`;
}

/** Date and time in the user's time zone. */
export function formatTime(time: number | string | null | undefined): string {
  if (time === null || time === undefined) return dash;
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return dash;
  const two = (value: number): string => String(value).padStart(2, "0");
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** A setting's name as words: `qkNorm` becomes `qk norm`. */
export function formatName(name: string): string {
  return name
    .replace(/([a-z0-9])([A-Z])/g, "$1 $2")
    .replaceAll("_", " ")
    .toLowerCase();
}
