"""The page in a real browser. YRNODE_TEST_PICTURES: a directory for pictures of it."""

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.browser import CHROMIUM, chromium
from tests.api.fake import FakeNode, snapshot, view
from tests.support.node import cluster_text, yrnode
from tests.support.serving import core
from yrnode.api.server import Api
from yrnode.model.board import Intent
from yrnode.model.cause import Cause, Reason
from yrnode.model.spec import CheckSpec
from yrnode.model.starts import Starts
from yrnode.model.state import Plane, State
from yrnode.policy.hits import Counts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs {CHROMIUM} (apt-get install chromium)"),
]
PICTURES = os.environ.get("YRNODE_TEST_PICTURES")
HOSTILE = "</script><script>window.owned=1</script><img src=x onerror=window.owned=2>"


LOOKS = ((1280, "light", "en"), (390, "dark", "zh"), (1280, "dark", "zh"), (390, "light", "en"))


async def picture(tab, name):
    if PICTURES:
        await tab.picture(Path(PICTURES) / f"{name}.png")


async def pictures(tab, name):
    """On a desk and on a phone, light and dark, in both languages; nothing is wider than the screen."""
    for width, scheme, lang in LOOKS:
        await tab.size(width, 900)
        await tab.prefer(scheme)
        await speak(tab, lang)
        await picture(tab, f"{name}-{width}-{scheme}-{lang}")
        assert await tab.run("document.documentElement.scrollWidth") <= width
    await tab.size(1280, 1000)
    await tab.prefer("light")
    await speak(tab, "en")


async def speak(tab, lang):
    await tab.run(f"document.documentElement.lang.startsWith('{lang}') || document.getElementById('lang').click()")


def state_of(name, *states):
    return f"{list(states)}.includes(document.querySelector('[data-name=\"{name}\"]')?.dataset.state)"


async def threaded(function, *args):
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)


async def test_a_fault_and_its_recovery_without_a_reload():
    checks = "checks: {rank.progress: {period: 200ms, stall_timeout: 12s}, rank.canary: {period: 1s, timeout: 1s}}"
    with yrnode(cluster_text(more=checks)) as node:
        async with chromium() as tab:
            await tab.size(1280, 1000)
            await threaded(node.wait, "an answer", lambda: node.get("/livez")[0] == 200)
            await tab.go(f"http://{node.api}/")
            await tab.until(state_of("rank/serve/0", "starting"))
            await pictures(tab, "starting")
            await threaded(node.wait_ready)
            await tab.run("window.same = 1")
            await tab.until(state_of("rank/serve/0", "ready"))
            await threaded(node.cli, "verify")
            await tab.until("document.querySelectorAll('.plot').length === 2", 30)
            await tab.until("!document.querySelector('.head.trouble')")
            await pictures(tab, "serving")

            os.kill(node.pids()["rank/serve/1"], signal.SIGKILL)
            await tab.until(state_of("rank/serve/1", "stopping", "cleaning", "backoff", "starting"), 20)
            await tab.until("document.getElementById('told').textContent.includes('rank/serve/1')")
            await tab.until(
                "document.querySelector('.event [class*=state]') && "
                "[...document.querySelectorAll('.event')].some((e) => e.textContent.includes('SIGKILL'))"
            )
            await tab.until(state_of("rank/serve/1", "ready"), 90)
            await tab.until("!document.querySelector('.head.trouble')", 60)

            await threaded(node.wait_ready)
            # the stand-in's engine core spins from now on
            os.kill(core(node), signal.SIGUSR2)
            await tab.until("document.querySelector('[data-name=\"rank/serve/1\"] .check .bad')")
            await pictures(tab, "one-rank-hung")
            await tab.until(state_of("rank/serve/1", "stopping", "cleaning", "backoff", "starting"), 60)
            await pictures(tab, "one-rank-hung-restarting")
            await threaded(node.wait_ready)

            drill = threaded(lambda: node.cli("drill", "store-down", "--yes", "--limit", "60", timeout=90))
            drilling = asyncio.ensure_future(drill)
            await tab.until("document.querySelector('.head .store.bad')")
            await pictures(tab, "store-down")
            await tab.size(320, 700)
            assert await tab.run("document.documentElement.scrollWidth") <= 320
            assert (await drilling).returncode == 0
            await tab.until("!document.querySelector('.head .store.bad')")
            assert await tab.run("window.same") == 1, "the page was loaded again"
            assert [s for s in tab.said if "favicon" not in s and "ERR_" not in s] == []


@pytest.fixture
async def served(tmp_path):
    node = FakeNode(tmp_path)
    api = Api(node, "127.0.0.1", 0, tmp_path / "run" / "y.sock")
    await api.start()
    yield node, f"http://127.0.0.1:{api.port}/"
    await api.close()


async def test_what_the_daemon_says_stays_text(served):
    node, url = served
    evil = Cause(Reason.EXITED, HOSTILE, HOSTILE)
    async with chromium() as tab:
        await tab.go(url)
        await tab.until("document.getElementById('link')?.className === 'link' && document.querySelector('.unit')")
        node.events.emit(HOSTILE, HOSTILE, evil)
        said = {target: Intent(1, paused=True, by=HOSTILE, why=HOSTILE) for target in ("serve", HOSTILE)}
        node.state = snapshot(view("worker", Plane.CACHE, State.BACKOFF, cause=evil), intents=said)
        await tab.until(state_of("worker", "backoff"))
        node.events.emit("etcd", "later", evil)
        await tab.until("[...document.querySelectorAll('.event')].some((e) => e.textContent.includes('later'))")
        assert await tab.run("document.querySelectorAll('.alert').length") == 2
        await tab.until("document.getElementById('main').textContent.includes('onerror=window.owned')")
        assert await tab.run("window.owned ?? 0") == 0
        assert await tab.run("document.images.length + document.scripts.length") == 1
        assert [s for s in tab.said if "favicon" not in s] == []


async def test_a_narrow_screen_a_keyboard_and_a_language(served):
    node, url = served
    rank = view("rank/serve/0", Plane.ENGINE)
    progress = CheckSpec("progress", "progress", 1.0, 1.0)
    rank = replace(rank, spec=replace(rank.spec, checks=(*rank.spec.checks, progress)))
    node.state = replace(snapshot(rank), now=time.monotonic())
    for i in range(30):
        node.metrics.hits.note(
            "rank/serve/0", "life", Counts(9.0 * i, 5.0 * i, 4.0 * i, i * i / 30), time.monotonic() - 11.0 * (29 - i)
        )
    async with chromium("zh-CN") as tab:
        await tab.size(320, 640)
        await tab.go(url)
        await tab.until("document.documentElement.lang === 'zh-CN'")
        await tab.until("document.getElementById('main').textContent.includes('就绪')")
        await tab.until(
            "document.querySelector('summary') && document.querySelectorAll('.plot polyline').length === 3"
        )
        assert await tab.run("document.documentElement.scrollWidth") <= 320
        await picture(tab, "phone-zh")
        # the skip link, the language, the first component's checks
        for expected in ("skip", "lang"):
            await tab.key("Tab", 9)
            assert await tab.run("document.activeElement.id") == expected
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert await tab.run(outline) == "solid"
        await tab.key("Enter", 13, "\r")
        await tab.until("document.documentElement.lang === 'en'")
        await tab.key("Tab", 9)
        assert await tab.run("document.activeElement.tagName") == "SUMMARY"
        await tab.key("Enter", 13, "\r")
        await tab.until("document.activeElement.parentElement.open")
        # drawing anew neither closes it nor takes the focus
        for i in range(3):
            node.events.emit("etcd", f"news-{i}", Cause(Reason.START, "first start"))
            await tab.until(
                f"[...document.querySelectorAll('.event')].some((e) => e.textContent.includes('news-{i}'))"
            )
        assert await tab.run(
            "document.activeElement.tagName === 'SUMMARY' && document.activeElement.parentElement.open"
        )
        assert await tab.run("[...document.querySelectorAll('header, main, [aria-live=polite]')].length") == 3
        await tab.go(url)
        await tab.until("document.querySelector('.unit') && document.documentElement.lang === 'en'")
        await picture(tab, "phone-en")


async def test_how_far_a_start_is_and_what_it_usually_takes(served):
    node, url = served
    rank = view("rank/serve/0", Plane.ENGINE, State.STARTING, since=600.0, generation=1)
    node.state = snapshot(rank, starts=Starts({rank.name: 100.0}, {"serve": 130.0}, {rank.name: HOSTILE}))
    async with chromium() as tab:
        await tab.go(url)
        of = f"document.querySelector('[data-name=\"{rank.name}\"] [data-key=progress]')?.textContent"
        await tab.until(f"{of}?.startsWith('start: 6 min 40 s · usually 1 min 40 s · ')")
        assert HOSTILE in await tab.run(of)
        assert (await tab.run(of)).endswith("late")
        await tab.until(
            "document.querySelector('[data-key=serve] [data-key=progress]').textContent.includes('2 min 10 s')"
        )
        await tab.run("document.getElementById('lang').click()")
        await tab.until(f"{of}?.includes('通常 1分 40秒')")
        node.state = snapshot()
        await tab.until(f"{of} === undefined")
        assert await tab.run("window.owned ?? 0") == 0


async def test_a_daemon_that_goes_and_comes_back(tmp_path):
    def events(word):
        return f"[...document.querySelectorAll('.event')].filter((e) => e.textContent.includes('{word}')).length"

    first = FakeNode(tmp_path)
    for i in range(5):
        first.events.emit("etcd", f"before-{i}", Cause(Reason.START, "first start"))
    api = Api(first, "127.0.0.1", 0, tmp_path / "run" / "y.sock")
    await api.start()
    async with chromium() as tab:
        await tab.go(f"http://127.0.0.1:{api.port}/")
        await tab.until(f"{events('before-')} === 5")
        await api.close()
        await tab.until("document.getElementById('told').textContent.includes('connection lost')")
        await tab.until("document.querySelector('.link.bad')")
        # without its files it counts its events from 1 again
        (tmp_path / "events.jsonl").unlink()
        second = FakeNode(tmp_path)
        second.events.emit("etcd", "after", Cause(Reason.START, "first start"))
        api = Api(second, "127.0.0.1", api.port, tmp_path / "run" / "y.sock")
        await api.start()
        await tab.until("!document.querySelector('.link.bad')")
        await tab.until(f"{events('after')} === 1 && {events('before-')} === 0")
        await api.close()


async def test_without_scripts_it_is_a_table(served):
    node, url = served
    node.state = snapshot(view("worker", Plane.CACHE, State.FAILED, cause=Cause(Reason.EXITED, "exit code 1")))
    async with chromium() as tab:
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        await tab.go(url)
        await tab.until("[...document.querySelectorAll('td')].some((c) => c.textContent === 'failed')")
        await picture(tab, "no-script")
