/**
 * A strict reader of Prometheus's text exposition format 0.0.4: it also rejects what Prometheus would accept
 * by guessing.
 */

export interface ReadMetric {
  readonly type: "gauge" | "counter";
  readonly help: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

const name = "[a-zA-Z_:][a-zA-Z0-9_:]*";
const sampleLine = new RegExp(`^(${name})(?:\\{(.*)\\})? (\\S+)$`);
const labelPair = /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,(?=.)|$)/;
const number = /^(?:NaN|[+-]Inf|-?(?:\d+(?:\.\d+)?)(?:e[+-]\d+)?)$/;

/** Each metric once: a HELP line, a TYPE line, one sample. */
export function readExposition(text: string): ReadonlyMap<string, ReadMetric> {
  if (!text.endsWith("\n") || text.includes("\r")) throw new Error("The page has to end with a line feed.");
  const metrics = new Map<string, ReadMetric>();
  const lines = text.slice(0, -1).split("\n");
  if (lines.length % 3 !== 0)
    throw new Error(`${lines.length} lines are not triples of HELP, TYPE and sample.`);
  for (let at = 0; at < lines.length; at += 3) {
    const [helpLine = "", typeLine = "", valueLine = ""] = lines.slice(at, at + 3);
    const [, helped, help = ""] = must(new RegExp(`^# HELP (${name}) (\\S.*)$`), helpLine);
    const [, typed, type] = must(new RegExp(`^# TYPE (${name}) (gauge|counter)$`), typeLine);
    const [, sampled = "", pairs, value = ""] = must(sampleLine, valueLine);
    if (helped !== sampled || typed !== sampled)
      throw new Error(`${sampled} follows ${helped} and ${typed}.`);
    if (metrics.has(sampled)) throw new Error(`${sampled} occurs twice.`);
    if ((type === "counter") !== sampled.endsWith("_total"))
      throw new Error(`${sampled} is a ${type}: counters, and only counters, end with _total.`);
    if (/\\(?![\\n])/.test(help)) throw new Error(`${sampled}'s help has a lone backslash.`);
    must(number, value);
    metrics.set(sampled, {
      type: type as ReadMetric["type"],
      ...{ help, labels: readLabels(pairs), value: Number(value.replace("Inf", "Infinity")) },
    });
  }
  return metrics;
}

function readLabels(text: string | undefined): Readonly<Record<string, string>> {
  const labels: Record<string, string> = {};
  let rest = text ?? "";
  while (rest !== "") {
    const [whole = "", label = "", value = ""] = must(labelPair, rest);
    if (Object.hasOwn(labels, label)) throw new Error(`Label ${label} occurs twice.`);
    labels[label] = value.replaceAll(/\\(.)/g, (_, char: string) => (char === "n" ? "\n" : char));
    rest = rest.slice(whole.length);
  }
  return labels;
}

function must(pattern: RegExp, text: string): RegExpExecArray {
  const match = pattern.exec(text);
  if (!match) throw new Error(`${JSON.stringify(text)} does not match ${pattern}.`);
  return match;
}
