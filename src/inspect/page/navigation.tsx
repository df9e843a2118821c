/** Navigation: the route in the address, the keyboard shortcuts, and the width of the window. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { formatRoute, parseRoute, type Route, tabs } from "./route.js";
import type { RunLine } from "./wire.js";

/** The route from the address; default: the newest run. */
export function useRoute(runs: readonly RunLine[] | undefined): [Route, (route: Route) => void] {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listen = (): void => setHash(location.hash);
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);
  const requested = useMemo(() => parseRoute(hash), [hash]);
  const first = runs?.find(({ note }) => !note) ?? runs?.[0];
  const route = useMemo(
    () => (requested.run === undefined ? { ...requested, run: first?.name } : requested),
    [requested, first?.name],
  );
  const go = (next: Route): void => {
    location.hash = formatRoute(next);
  };
  return [route, go];
}

/** True if the window is too narrow for a column with the list of runs. */
export function useIsNarrow(): boolean {
  const query = useMemo(() => matchMedia("(max-width: 760px)"), []);
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const listen = (): void => setNarrow(query.matches);
    query.addEventListener("change", listen);
    return () => query.removeEventListener("change", listen);
  }, [query]);
  return isNarrow;
}

/** Keyboard shortcuts, except in input fields. */
export function useShortcuts(route: Route, go: (route: Route) => void, help: () => void): void {
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      const isTyping =
        event.target instanceof HTMLElement &&
        event.target.matches("input:not([type=checkbox]), select, textarea");
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (isTyping) {
        if (event.key === "Escape" && event.target instanceof HTMLElement) event.target.blur();
        return;
      }
      const tab = tabs[Number(event.key) - 1];
      if (tab && route.run !== undefined) go({ ...route, tab });
      else if (event.key === "?") help();
      else if (event.key === "/") {
        const field =
          document.querySelector<HTMLElement>("main [data-search]") ??
          document.querySelector<HTMLElement>("[data-search]");
        field?.focus();
      } else return;
      event.preventDefault();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  });
}
