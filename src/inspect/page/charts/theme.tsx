/** The light or dark theme: the system's, or the user's choice. */

import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { type Ink, inks } from "./palette.js";

const choices = ["system", "light", "dark"] as const;

export type ThemeChoice = (typeof choices)[number];

const key = "holdfast-theme";

/** The colours of canvases; style sheets have their own. */
export const InkContext = createContext<Ink>(inks.light);

export function useInk(): Ink {
  return useContext(InkContext);
}

export function useTheme(): { choice: ThemeChoice; ink: Ink; next: () => void } {
  const [choice, setChoice] = useState<ThemeChoice>(storedChoice);
  const [isSystemDark, setSystemDark] = useState(() => darkQuery().matches);
  useEffect(() => {
    const query = darkQuery();
    const listen = (): void => setSystemDark(query.matches);
    query.addEventListener("change", listen);
    return () => query.removeEventListener("change", listen);
  }, []);
  useEffect(() => {
    if (choice === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = choice;
    try {
      localStorage.setItem(key, choice);
    } catch {
      // Without storage, the choice lasts until the page is closed.
    }
  }, [choice]);
  const isDark = choice === "dark" || (choice === "system" && isSystemDark);
  const next = (): void => setChoice(choices[(choices.indexOf(choice) + 1) % choices.length] ?? "system");
  return { choice, ink: isDark ? inks.dark : inks.light, next };
}

function darkQuery(): MediaQueryList {
  return matchMedia("(prefers-color-scheme: dark)");
}

function storedChoice(): ThemeChoice {
  try {
    const stored = localStorage.getItem(key);
    return choices.find((option) => option === stored) ?? "system";
  } catch {
    return "system";
  }
}
