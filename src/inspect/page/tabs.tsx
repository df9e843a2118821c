/** The tabs of a run's page. The arrow keys move between them. */

import type { TargetedKeyboardEvent } from "preact";
import { useRef } from "preact/hooks";
import { type Tab, tabs } from "./route.js";
import { formatCount } from "./tables/format.js";

const tabNames: Readonly<Record<Tab, string>> = {
  learning: "Learning",
  speed: "Speed",
  memory: "Memory",
  incidents: "Incidents",
  about: "About this run",
};

interface TabsProps {
  readonly tab: Tab;
  readonly incidents: number;
  readonly onTab: (tab: Tab) => void;
}

export function Tabs({ tab, incidents, onTab }: TabsProps) {
  const list = useRef<HTMLDivElement>(null);
  const move = (event: TargetedKeyboardEvent<HTMLDivElement>): void => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = (tabs.indexOf(tab) + by + tabs.length) % tabs.length;
    onTab(tabs[next] ?? tab);
    list.current?.querySelectorAll("button")[next]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Views" ref={list} onKeyDown={move}>
      {tabs.map((name) => (
        <button
          type="button"
          role="tab"
          key={name}
          id={`tab-${name}`}
          aria-selected={name === tab}
          aria-controls="panel"
          tabIndex={name === tab ? 0 : -1}
          onClick={() => onTab(name)}
        >
          {tabNames[name]}
          {name === "incidents" && incidents > 0 ? <span class="badge">{formatCount(incidents)}</span> : null}
        </button>
      ))}
    </div>
  );
}
