/**
 * Parses cells of a file as numbers or times. A cell is text in CSV; in Parquet it is a number, a bigint, a Date or text. Invalid
 * cells give NaN, and the caller reports the position.
 */

const secondMs = 1000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;

/** Smaller numbers are seconds since 1970 (up to the year 5138); larger ones are milliseconds (from 1973). */
const firstMilliseconds = 1e11;

/** 10000-01-01: larger numbers are probably microseconds or nanoseconds. */
const endOfTimeMs = 253_402_300_800_000;

/** A finite number, or NaN. */
export function parseNumber(cell: unknown): number {
  if (typeof cell === "string") return parseNumberText(cell);
  const number = typeof cell === "bigint" ? Number(cell) : cell;
  return typeof number === "number" && Number.isFinite(number) ? number : Number.NaN;
}

/** Whole milliseconds since 1970 (UTC), or NaN. Text without a zone is UTC, not local time. */
export function parseTime(cell: unknown): number {
  if (cell instanceof Date) return withinTime(cell.getTime());
  const text = typeof cell === "string" ? cell.trim() : "";
  const isDate = text.length >= 10 && text.charAt(4) === "-";
  return withinTime(isDate ? parseDate(text) : toMilliseconds(parseNumber(cell)));
}

/** Whole numbers in this range are days such as 20200131, not seconds of August 1970. */
const firstDay = 1900_01_01;
const lastDay = 2199_12_31;

function toMilliseconds(number: number): number {
  if (number >= firstDay && number <= lastDay && Number.isInteger(number)) return parseDayNumber(number);
  return Math.round(Math.abs(number) < firstMilliseconds ? number * secondMs : number);
}

/** True for milliseconds that can be read and written. */
export function isTime(milliseconds: number): boolean {
  return Math.abs(milliseconds) < endOfTimeMs;
}

function withinTime(milliseconds: number): number {
  return isTime(milliseconds) ? milliseconds : Number.NaN;
}

/** 10⁰ to 10¹⁵: exact in a double, like whole numbers of up to 15 digits. */
const powersOfTen = Array.from({ length: 16 }, (_, exponent) => Number(`1e${exponent}`));

function parseNumberText(text: string): number {
  if (text.length > 16) return parseAnyNumber(text);
  // Most cells are digits with an optional point; this takes a third of Number()'s time. An exact whole number divided by an exact
  // power of ten is rounded once, so the result equals Number()'s.
  let whole = 0;
  let point = -1;
  for (let index = 0; index < text.length; index++) {
    const digit = text.charCodeAt(index) - 48;
    if (digit >= 0 && digit <= 9) whole = whole * 10 + digit;
    else if (digit === -2 && point < 0) point = index;
    else return parseAnyNumber(text);
  }
  const decimals = point < 0 ? 0 : text.length - 1 - point;
  const digitCount = text.length - (point < 0 ? 0 : 1);
  return digitCount >= 1 && digitCount <= 15 ? whole / (powersOfTen[decimals] ?? 1) : parseAnyNumber(text);
}

function parseAnyNumber(cell: string): number {
  const text = cell.trim();
  // Number() reads an empty string as 0, and accepts 0x1f, 0b1 and 0o7.
  const number = text === "" || /^0[xbo]/i.test(text) ? Number.NaN : Number(text);
  return Number.isFinite(number) ? number : Number.NaN;
}

/** After hours and minutes: seconds, their fraction, and the zone, all optional. */
const clockTail = /^(?::(\d\d)(?:[.,](\d{1,9}))?)?(?:Z|([+-])(\d\d):?(\d\d))?$/i;

/** YYYY-MM-DD, then maybe T or a space and HH:MM[:SS[.fraction]][zone]. */
function parseDate(text: string): number {
  const day = parseDay(text);
  if (text.length === 10) return day;
  const separator = text.charAt(10);
  if (separator !== "T" && separator !== " " && separator !== "t") return Number.NaN;
  const hour = digits(text, 11, 2);
  const minute = digits(text, 14, 2);
  if (!(hour < 24 && minute < 60) || text.charAt(13) !== ":") return Number.NaN;
  return day + hour * hourMs + minute * minuteMs + parseClockTail(text);
}

function parseClockTail(text: string): number {
  if (text.length === 16) return 0;
  // The most frequent endings, :SS and :SSZ, without a regular expression: a file has millions.
  if (text.charAt(16) === ":" && (text.length === 19 || (text.length === 20 && text.charAt(19) === "Z"))) {
    const second = digits(text, 17, 2);
    return second < 60 ? second * secondMs : Number.NaN;
  }
  const tail = clockTail.exec(text.slice(16));
  if (tail === null) return Number.NaN;
  const [, second = "0", fraction = "0", sign = "+", zoneHours = "0", zoneMinutes = "0"] = tail;
  if (Number(second) >= 60 || Number(zoneHours) >= 24 || Number(zoneMinutes) >= 60) return Number.NaN;
  const zoneMs = Number(zoneHours) * hourMs + Number(zoneMinutes) * minuteMs;
  const sinceMinute = Math.round(Number(`${second}.${fraction}`) * secondMs);
  return sinceMinute + (sign === "+" ? -zoneMs : zoneMs);
}

/** YYYYMMDD, or NaN for an invalid day. */
function parseDayNumber(number: number): number {
  const [year, month, day] = [Math.floor(number / 10_000), Math.floor(number / 100) % 100, number % 100];
  return timeOfDay(year, month, day);
}

function parseDay(text: string): number {
  const year = digits(text, 0, 4);
  const month = digits(text, 5, 2);
  const day = digits(text, 8, 2);
  return text.charAt(7) === "-" ? timeOfDay(year, month, day) : Number.NaN;
}

function timeOfDay(year: number, month: number, day: number): number {
  if (!(year >= 100 && month >= 1 && month <= 12 && day >= 1)) return Number.NaN;
  // Day 0 of the next month is the last of this one.
  const isInMonth = day <= 28 || day <= new Date(Date.UTC(year, month, 0)).getUTCDate();
  return isInMonth ? Date.UTC(year, month - 1, day) : Number.NaN;
}

/** The value of `count` digits, or NaN. */
function digits(text: string, at: number, count: number): number {
  let number = 0;
  for (let index = at; index < at + count; index++) {
    const digit = text.charCodeAt(index) - 48;
    if (!(digit >= 0 && digit <= 9)) return Number.NaN;
    number = number * 10 + digit;
  }
  return number;
}
