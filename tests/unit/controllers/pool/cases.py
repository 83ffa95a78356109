"""Which test shows each behaviour of warm pools that the contract pins, by its number there, or why it is different here.

"plan.cases[x]" stands for test_plan.py::test_cases[x] in this folder; "life", "rollouts", "faults", "patience" are the files about
pools in tests/integration/controllers; the others belong to what the pool builds on.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
UNIT = HERE.parents[1]
INTEGRATION = UNIT.parent / "integration" / "controllers"
FILES = {
    **{
        name: HERE / f"test_{name}.py"
        for name in (
            "plan",
            "properties",
            "roster",
            "pace",
            "status",
            "body",
            "member",
            "batches",
            "triggers",
            "growth",
        )
    },
    "life": INTEGRATION / "test_pool.py",
    **{name: INTEGRATION / f"test_pool_{name}.py" for name in ("rollouts", "faults", "patience", "chaos")},
    "blueprint": UNIT / "model" / "test_blueprint.py",
    "read": UNIT / "controllers" / "assigner" / "test_facts.py",
    "queue": UNIT / "loop" / "test_queue.py",
    "sandbox_pod": UNIT / "controllers" / "sandbox" / "test_pod.py",
}


class Differs(NamedTuple):
    """Answered differently, or not by this controller; `test` shows what happens instead, where something does."""

    reason: str
    test: str = ""


_EVICTION = Differs(
    "whether a pod may be evicted follows from its owner, so the Sandbox controller says it, and a claim need not undo it",
    "sandbox_pod.members_may_be_evicted_until_they_are_claimed",
)
_NO_COUNTERS = Differs(
    "answers to our own writes are in the cache at once, so there is nothing to expect; only creates without an answer are "
    "remembered, by name",
    "faults.creates_whose_answers_are_lost_count",
)
_NO_TIMEOUT = Differs(
    "an open create is settled by reading it, not by waiting five minutes", "faults.an_unknown_create_counts_as_long_as_nobody_knows"
)  # fmt: skip

CASES: dict[str, str | Differs] = {
    "P-01": "plan.cases[P-01 unset replicas]",
    "P-02": "life.an_empty_pool_is_filled_at_once",
    "P-03": "plan.cases[P-03 some are missing]",
    "P-04": "life.scaling_down_takes_the_unready_and_the_youngest_first",
    "P-05": "life.a_pool_becomes_ready_and_then_rests",
    "P-06": "life.scaling_down_takes_the_unready_and_the_youngest_first",
    "P-07": "life.an_orphan_counts_while_it_is_adopted",
    "P-08": "life.an_empty_pool_is_filled_at_once",
    "P-09": "life.labels_do_not_make_a_sandbox_of_somebody_else_a_member",
    "P-10": "life.an_orphan_comes_back_and_a_forgery_goes",
    "P-11": "life.lost_labels_come_back",
    "P-12": "body.it_says_whose_it_is_and_what_it_was_made_from",
    "P-13": "body.it_follows_the_template_in_everything",
    "P-14": "body.secure_defaults",
    "P-15": "body.secure_defaults",
    "P-16": "body.secure_defaults",
    "P-17": "status.ready",
    "P-18": "member.one_that_has_said_nothing_is_not_ready",
    "P-19": "status.counts",
    "P-20": "status.the_patch_is_for_this_very_pool_and_writes_zeros",
    "P-21": "plan.cases[P-21 stuck, no successor yet]",
    "P-22": "patience.a_member_that_never_becomes_ready_is_replaced_ever_more_slowly",
    "P-23": "plan.cases[P-23 inside its grace]",
    "P-24": "rollouts.recreate_replaces_all",
    "P-25": "rollouts.on_replenish_leaves_members_and_replaces_with_new_ones",
    "P-26": "plan.cases[P-26 an empty strategy]",
    "P-27": "rollouts.another_template_rolls_even_if_it_says_the_same",
    "P-28": "life.a_template_wakes_the_pools_that_name_it",
    "P-29": "blueprint.a_new_sandbox_follows_its_template",
    "P-30": "body.what_makes_it_stale",
    "P-31": "body.what_makes_it_stale",
    "P-32": "blueprint.a_new_sandbox_follows_its_template",
    "P-33": "body.what_makes_it_stale",
    "P-34": "life.an_orphan_comes_back_and_a_forgery_goes",
    "P-35": "life.an_orphan_comes_back_and_a_forgery_goes",
    "P-36": Differs("starts wide, and slowly only after a failure", "batches.ramp"),
    "P-37": "batches.ramp",
    "P-38": "batches.a_failure_ends_it_after_its_batch",
    "P-39": Differs(
        "cancelled, everything under way is cancelled at once; what became of it is found out in the next pass",
        "faults.a_new_life_goes_on_where_the_last_one_ended",
    ),
    "P-40": _EVICTION,
    "P-41": _EVICTION,
    "P-42": _EVICTION,
    "P-43": _EVICTION,
    "P-44": "plan.cases[P-44 recreate, nothing stale]",
    "P-45": "rollouts.an_edit_that_changes_no_sandbox_rolls_nothing",
    "P-46": "blueprint.a_change_that_does_not",
    "P-47": "blueprint.a_change_that_makes_sandboxes_stale",
    "P-48": "body.what_makes_it_stale",
    "P-49": "blueprint.the_hash_names_the_content_not_the_writing",
    "P-50": "blueprint.a_change_that_makes_sandboxes_stale",
    "P-51": "blueprint.the_order_of_claims_matters",
    "P-52": "blueprint.a_change_that_makes_sandboxes_stale",
    "P-53": "blueprint.a_change_that_makes_sandboxes_stale",
    "P-54": "body.a_new_field_of_the_blueprint_must_be_copied_and_compared",
    "P-55": "faults.the_watch_may_lag_as_it_likes",
    "P-56": "life.a_pool_becomes_ready_and_then_rests",
    "P-57": Differs("the queue never gives one pool to two workers", "queue.added_while_processed_comes_once_more_after_done"),
    "P-58": "rollouts.recreate_waits_for_a_member_that_goes_slowly",
    "P-59": "rollouts.recreate_waits_for_a_member_that_goes_slowly",
    "P-60": Differs(
        "kept, counted and told as there, but woken by what the scheduler says instead of once a minute",
        "patience.a_member_without_a_node_is_kept_and_told_once",
    ),
    "P-61": "patience.a_member_without_a_node_is_kept_and_told_once",
    "P-62": "patience.a_member_without_a_node_is_kept_and_told_once",
    "P-63": "plan.cases[P-63 stuck on a node]",
    "P-64": "patience.a_day_of_a_broken_template_is_few_sandboxes",
    "P-65": "faults.a_member_that_is_gone_already_is_no_error",
    "P-66": Differs("exactly at the deadline: there is no lag to allow for", "plan.the_next_look_is_when_the_first_patience_ends"),
    "P-67": Differs("no jitter: members were not made at one moment either", "plan.the_next_look_is_when_the_first_patience_ends"),
    "P-68": "plan.a_full_pool_needs_no_look",
    "P-69": "patience.a_member_without_a_node_is_kept_and_told_once",
    "P-70": "plan.a_longer_grace_is_kept",
    "P-71": Differs("options have their defaults in their declaration; zero is not a wish for the default"),
    "P-72": "plan.without_a_hold_replacements_come_in_the_same_pass",
    "P-73": "patience.refilling_can_wait_for_the_end_of_a_burst_but_not_for_ever",
    "P-74": "pace.a_further_loss_begins_anew_but_not_for_ever",
    "P-75": "patience.the_first_fill_is_never_held",
    "P-76": "plan.a_hold_holds_creates_only",
    "P-77": "pace.a_full_pool_ends_it_even_with_a_loss",
    "P-78": Differs("losses are counted as they happen, so there is no baseline that lag could disturb", "pace.a_loss_holds"),
    "P-79": "plan.without_a_hold_replacements_come_in_the_same_pass",
    "P-80": "pace.a_new_bucket_holds_one_second",
    "P-81": "pace.idle_time_is_not_banked",
    "P-82": "pace.a_slow_rate_holds_one",
    "P-83": "pace.a_huge_rate_does_not_overflow",
    "P-84": Differs("nothing refuses creates after tokens are spent, so nothing is refunded", "plan.a_rate_limits_creates_only"),
    "P-85": Differs("a partial grant comes back for the next token, too", "patience.refilling_can_be_slow"),
    "P-86": _NO_COUNTERS,
    "P-87": "plan.no_token_is_spent_during_a_hold",
    "P-88": "plan.a_rate_limits_creates_only",
    "X-01": _NO_COUNTERS,
    "X-02": _NO_COUNTERS,
    "X-03": "faults.after_a_failure_creates_start_with_one",
    "X-04": Differs("tombstones of the cache stand for deletes, by uid", "faults.a_delete_without_an_answer_is_settled"),
    "X-05": _NO_COUNTERS,
    "X-06": _NO_TIMEOUT,
    "X-07": _NO_TIMEOUT,
    "X-08": "life.a_pool_made_again_does_not_own_the_members_of_the_first",
    "X-09": _NO_COUNTERS,
    "X-10": Differs("one thread: there is nothing to race"),
    "X-11": "life.labels_do_not_make_a_sandbox_of_somebody_else_a_member",
}  # fmt: skip
