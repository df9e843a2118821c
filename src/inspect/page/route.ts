/** Where the page is, as its address tells it: `#/NAME/TAB?with=OTHER&with=ANOTHER`. */

export const tabs = ["learning", "speed", "memory", "incidents", "about"] as const;

export type Tab = (typeof tabs)[number];

export interface Route {
  /** Undefined until a run is chosen. */
  readonly run: string | undefined;
  readonly tab: Tab;
  /** Runs that are laid over it. */
  readonly others: readonly string[];
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [run = "", tab = ""] = path.split("/").map(decode);
  const others = new URLSearchParams(query).getAll("with");
  return {
    run: run === "" ? undefined : run,
    tab: tabs.find((known) => known === tab) ?? "learning",
    others: [...new Set(others)].filter((other) => other !== run && other !== ""),
  };
}

export function formatRoute({ run, tab, others }: Route): string {
  if (run === undefined) return "#/";
  const query = new URLSearchParams(others.map((other): [string, string] => ["with", other])).toString();
  return `#/${encodeURIComponent(run)}/${tab}${query === "" ? "" : `?${query}`}`;
}

/** A text that is no code is taken as it stands: an address that someone typed is no error. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
