"""Batches: the list, one of them with its progress and failures, and the verbs over it."""

from browsing import Site, accessibility_problems
from playwright.sync_api import expect

from waiting import wait_for


def test_batches_from_the_empty_list_to_one_that_is_retried(site: Site, colours: str) -> None:
    app = site.app
    page = site.visit("operator", "/batches?status=open", color_scheme=colours)
    assert accessibility_problems(page) == []
    send, fails = app.task_named("send_report"), app.task_named("break_down")
    jobs = [send.job(to="a"), send.job(to="b"), fails.options(max_retries=0).job()]
    batch = app.batch(jobs, then=send.job(to="boss"), name=f"reports-{colours}")
    wait_for(lambda: batch.status() == "failed", "the batch has ended")

    page.goto("/jobs")
    page.get_by_role("link", name="Batches").click()
    row = page.locator("#batches tbody tr").filter(has_text=batch.name or "")
    expect(row).to_contain_text("failed")
    expect(row).to_contain_text("3 of 3")
    assert accessibility_problems(page) == []
    row.get_by_role("link").click()
    expect(page.locator("#progress")).to_contain_text("3 of 3")
    expect(page.locator("#progress")).to_contain_text("send_report")
    expect(page.locator("#failed tbody tr")).to_have_count(1)
    assert accessibility_problems(page) == []

    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("Retried 1 job.")).to_be_visible()
    wait_for(lambda: batch.status() == "failed", "it has failed again")
    page.locator("#progress").get_by_role("link", name="2", exact=True).click()
    expect(page.locator("#results tbody tr")).to_have_count(2)
    page.locator("#results tbody tr").first.locator("a.name").click()
    expect(page.locator("#definition").get_by_role("link", name="the one that it")).to_be_visible()


def test_cancelling_a_batch_asks_first(site: Site) -> None:
    app = site.app
    app.store.control.pause_queue("quiet")
    send = app.task_named("send_report").options(queue="quiet")
    batch = app.batch([send.job(to=str(n)) for n in range(3)], then=send.job(to="boss"))
    page = site.visit("operator", f"/batches/{batch.id}")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused 3 jobs.")).to_be_visible()
    page.get_by_role("link", name="Cancel …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 jobs that have not ended")
    dialog.get_by_role("button", name="Cancel the batch").click()
    expect(page.get_by_text("Cancelled 4 jobs.")).to_be_visible()
    assert batch.status() == "cancelled"
    page = site.visit("viewer", f"/batches/{batch.id}")
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)


def test_what_runs_after_a_batch_leads_to_it(site: Site) -> None:
    batch = site.app.open_batch(name="import")
    job = site.app.task_named("send_report").options(after=batch).enqueue(to="a")
    page = site.visit("operator", f"/jobs/{job.id}")
    page.locator("#definition").get_by_role("link", name="import").click()
    expect(page.get_by_role("heading", name="import")).to_be_visible()
    page.goto(f"/jobs/{job.id}/edit")
    expect(page.locator("[name=after]")).to_have_value(str(batch.id))
