/** The page's route in its address: `#/NAME/TAB?with=OTHER&with=ANOTHER`. */

export const tabs = ["learning", "speed", "memory", "incidents", "about"] as const;

export type Tab = (typeof tabs)[number];

export interface Route {
  /** Undefined until a run is selected. */
  readonly run: string | undefined;
  readonly tab: Tab;
  /** Runs to compare with. */
  readonly others: readonly string[];
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [run = "", tab = ""] = path.split("/").map(decode);
  const others = new URLSearchParams(query).getAll("with");
  return {
    run: run === "" ? undefined : run,
    tab: tabs.find((name) => name === tab) ?? "learning",
    others: [...new Set(others)].filter((other) => other !== run && other !== ""),
  };
}

export function formatRoute({ run, tab, others }: Route): string {
  if (run === undefined) return "#/";
  const query = new URLSearchParams(others.map((other): [string, string] => ["with", other])).toString();
  return `#/${encodeURIComponent(run)}/${tab}${query === "" ? "" : `?${query}`}`;
}

/** Text with invalid escapes is used as it is, because users may type addresses. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
