/** The page: the runs, the head of the chosen one, and its tabs. */

import { Component, type ComponentChildren, type TargetedKeyboardEvent } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { AboutView } from "./about-view.js";
import { assignLooks } from "./charts/palette.js";
import { InkContext, useTheme } from "./charts/theme.js";
import { HelpDialog } from "./help-dialog.js";
import { MemoryView } from "./plan/memory-view.js";
import { formatRoute, parseRoute, type Route, type Tab, tabs } from "./route.js";
import { IncidentsView } from "./runs/incidents-view.js";
import { LearningView } from "./runs/learning-view.js";
import { RunHead } from "./runs/run-head.js";
import { RunList } from "./runs/run-list.js";
import { SpeedView } from "./runs/speed-view.js";
import { runPath, useAnswer, useDetails, useIsLost, useRun, useRuns } from "./server.js";
import { formatCount } from "./tables/format.js";
import { useStepTables } from "./tables/step-tables.js";
import type { MemorySample, RunLine } from "./wire.js";

const tabNames: Readonly<Record<Tab, string>> = {
  learning: "Learning",
  speed: "Speed",
  memory: "Memory",
  incidents: "Incidents",
  about: "About this run",
};

export function App() {
  const theme = useTheme();
  const isLost = useIsLost();
  const { answer: runs, rejection } = useRuns();
  const [route, go] = useRoute(runs);
  const [isHelpOpen, setHelpOpen] = useState(false);
  const isNarrow = useIsNarrow();
  useKeys(route, go, () => setHelpOpen(true));
  const looks = useMemo(
    () => assignLooks([...(route.run === undefined ? [] : [route.run]), ...route.others]),
    [route.run, route.others.join("\n")],
  );
  const compare = (name: string, isWanted: boolean): void =>
    go({
      ...route,
      others: isWanted ? [...route.others, name] : route.others.filter((other) => other !== name),
    });

  return (
    <InkContext.Provider value={theme.ink}>
      <div class="layout">
        <aside>
          <div class="brand">
            <a href="#/" class="name">
              Holdfast <span>inspector</span>
            </a>
            <button
              type="button"
              class="small"
              title="Light, dark, or as the system has it"
              onClick={theme.next}
            >
              {{ system: "Auto", light: "Light", dark: "Dark" }[theme.choice]}
            </button>
            <button
              type="button"
              class="small"
              aria-label="Help"
              title="Keys (?)"
              onClick={() => setHelpOpen(true)}
            >
              ?
            </button>
          </div>
          {runs && runs.length > 0 ? (
            <details class="run-list" open={!isNarrow}>
              <summary>
                Runs <small>tick to compare</small>
              </summary>
              <RunList runs={runs} route={route} looks={looks} onCompare={compare} />
            </details>
          ) : null}
        </aside>
        <main>
          <div aria-live="polite">
            {isLost ? (
              <p class="banner lost">Connection lost, retrying. What is shown is as it last was.</p>
            ) : null}
            {rejection ? <p class="banner">{rejection}</p> : null}
          </div>
          {runs === undefined && !rejection ? <p class="empty large">Reading the runs…</p> : null}
          {runs?.length === 0 ? (
            <p class="empty large">
              No runs yet. <code>holdfast train crossasset --out runs/first</code> makes one; it appears here
              as soon as it has begun.
            </p>
          ) : null}
          {route.run === undefined ? null : (
            <RunPage
              key={route.run}
              name={route.run}
              line={runs?.find(({ name }) => name === route.run)}
              route={route}
              looks={looks}
              go={go}
            />
          )}
        </main>
      </div>
      <HelpDialog isOpen={isHelpOpen} onClose={() => setHelpOpen(false)} />
    </InkContext.Provider>
  );
}

interface RunPageProps {
  readonly name: string;
  readonly line: RunLine | undefined;
  readonly route: Route;
  readonly looks: ReturnType<typeof assignLooks>;
  readonly go: (route: Route) => void;
}

function RunPage({ name, line, route, looks, go }: RunPageProps) {
  const live = useRun(name);
  const { detail, status } = live;
  const compared = useMemo(() => [name, ...route.others], [name, route.others.join("\n")]);
  const tables = useStepTables(compared, live.rows);
  const { answer: samples = noSamples } = useAnswer<readonly MemorySample[]>(
    runPath(name, "/memory"),
    live.memoryVersion,
  );
  const details = useDetails(route.others);
  const others = useMemo(
    () =>
      new Map(
        route.others.flatMap((other) => (details.has(other) ? [[other, details.get(other)]] : [])) as never,
      ),
    [details, route.others.join("\n")],
  ) as ReadonlyMap<string, NonNullable<typeof detail>>;
  useEffect(() => {
    document.title = `${name} – Holdfast inspector`;
  }, [name]);

  if (!detail) {
    const told = live.rejection ?? line?.note;
    return told ? <p class="banner">{told}</p> : <p class="empty large">Reading {name}…</p>;
  }
  const { tab } = route;
  const messages = [...new Set([...detail.messages, ...(line?.note ? [line.note] : [])])];
  return (
    <>
      {messages.length > 0 ? (
        <div class="banner" role="alert">
          <b>This run’s folder is not whole. What can be read is shown.</b>
          <ul>
            {messages.map((message) => (
              <li key={message}>{message}</li>
            ))}
          </ul>
        </div>
      ) : null}
      <RunHead
        detail={detail}
        status={status}
        isLive={status?.state === "running" && (line?.isLive ?? true)}
        table={tables.whole.get(name)}
        memory={samples.at(-1)}
      />
      <Tabs tab={tab} incidents={detail.incidents.length} onTab={(next) => go({ ...route, tab: next })} />
      <div id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        <Guard key={tab}>
          {tab === "learning" ? (
            <LearningView detail={detail} others={others} tables={tables} looks={looks} />
          ) : null}
          {tab === "speed" ? (
            <SpeedView
              detail={detail}
              others={others}
              tables={tables}
              looks={looks}
              planVersion={live.planVersion}
            />
          ) : null}
          {tab === "memory" ? (
            <MemoryView detail={detail} samples={samples} planVersion={live.planVersion} />
          ) : null}
          {tab === "incidents" ? <IncidentsView detail={detail} /> : null}
          {tab === "about" ? <AboutView detail={detail} status={status} /> : null}
        </Guard>
      </div>
    </>
  );
}

const noSamples: readonly MemorySample[] = [];

interface TabsProps {
  readonly tab: Tab;
  readonly incidents: number;
  readonly onTab: (tab: Tab) => void;
}

function Tabs({ tab, incidents, onTab }: TabsProps) {
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

/** A view that fails says so; the others stay. */
class Guard extends Component<{ readonly children: ComponentChildren }, { message?: string }> {
  override state: { message?: string } = {};

  override componentDidCatch(error: unknown): void {
    this.setState({ message: error instanceof Error ? error.message : String(error) });
  }

  override render() {
    const { message } = this.state;
    if (message === undefined) return this.props.children;
    return (
      <p class="banner" role="alert">
        This view can’t be drawn: {message}. The others still can.
      </p>
    );
  }
}

/** The address is where the page is; without one it is the newest run. */
function useRoute(runs: readonly RunLine[] | undefined): [Route, (route: Route) => void] {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listen = (): void => setHash(location.hash);
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);
  const asked = useMemo(() => parseRoute(hash), [hash]);
  const first = runs?.find(({ note }) => !note) ?? runs?.[0];
  const route = useMemo(
    () => (asked.run === undefined ? { ...asked, run: first?.name } : asked),
    [asked, first?.name],
  );
  const go = (next: Route): void => {
    location.hash = formatRoute(next);
  };
  return [route, go];
}

function useIsNarrow(): boolean {
  const query = useMemo(() => matchMedia("(max-width: 760px)"), []);
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const listen = (): void => setNarrow(query.matches);
    query.addEventListener("change", listen);
    return () => query.removeEventListener("change", listen);
  }, [query]);
  return isNarrow;
}

/** Keys that work anywhere but where one types. */
function useKeys(route: Route, go: (route: Route) => void, help: () => void): void {
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
