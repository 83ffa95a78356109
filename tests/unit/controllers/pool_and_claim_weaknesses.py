"""Which tests show that each known weakness of controllers for pools and claims is not here, by its number; or why it cannot be.

L are about latency and the number of writes, S about safety, O about operating it, A about the API. Those about networks (N) are
in weaknesses.py, with those of sandboxes.
"""

from __future__ import annotations

from unit.controllers.claim.cases import (
    ASSIGNER,
    BINDING,
    BUDGET,
    END,
    FAULTS,
    LIFE,
    NOTES,
    TIMES,
    TRANSFER,
    UPKEEP,
    WHOLE,
    WORLD,
)
from unit.controllers.weaknesses import NotHere, Shown, shown

POOL, ROLLOUTS, PATIENCE = (f"{WORLD}/test_pool{part}.py" for part in ("", "_rollouts", "_patience"))
BOX, PLAN = f"{WORLD}/test_sandbox.py", "unit/controllers/pool/test_plan.py"
LEASE = "unit/loop/test_lease.py"

WEAKNESSES: dict[str, Shown | NotHere] = {
    "L1": shown((BUDGET, "two_round_trips_to_ready"), (BUDGET, "one_warm_claim_is_four_writes_and_one_reconcile")),
    "L2": shown((TRANSFER, "the_spec_is_not_even_mentioned"), (LIFE, "a_generation_alone_is_no_news")),
    "L3": shown((POOL, "every_member_is_complete_from_the_beginning")),
    "L4": shown((BOX, "a_sandbox_becomes_ready_in_two_writes")),
    "L5": shown(
        (POOL, "a_burst_costs_one_create_each_and_few_status_writes"),
        (POOL, "our_own_status_write_wakes_nobody"),
    ),
    "L6": shown(
        ("unit/controllers/pool/test_growth.py", "a_taken_member_costs_the_same"),
        (POOL, "statuses_of_many_members_travel_together"),
    ),
    "L7": shown(
        ("unit/controllers/assigner/test_growth.py", "one_acquire"),
        ("unit/controllers/assigner/test_growth.py", "a_long_life"),
    ),
    "L8": shown(
        (ASSIGNER, "waiters_are_served_in_order_and_woken_once"),
        (ASSIGNER, "ready_before_older_unready"),
    ),
    "L9": shown(
        (LIFE, "a_claim_waits_for_a_member_that_warms_and_is_woken_by_it"),
        but="a cold start that has begun is not taken back: two sandboxes would have to race for the claim",
    ),
    "L10": shown((BUDGET, "one_warm_claim_is_four_writes_and_one_reconcile")),
    "L11": shown((POOL, "an_empty_pool_is_filled_at_once"), ("unit/controllers/pool/test_batches.py", "ramp")),
    "L12": shown(
        ("unit/controllers/sandbox/test_triggers.py", "how_soon_a_pod_matters"),
        (BOX, "a_slow_start_is_three_reconciles_however_much_the_kubelet_says"),
    ),
    "S1": shown(
        (ROLLOUTS, "a_member_taken_while_the_rollout_deletes_survives"),
        (ROLLOUTS, "a_reserved_member_is_not_deleted_until_it_is_free"),
    ),
    "S2": shown((ROLLOUTS, "a_member_taken_while_the_rollout_deletes_survives")),
    "S3": shown((NOTES, "a_moment_that_we_noted_ourselves_is_not_unknown")),
    "S4": shown(
        (PATIENCE, "a_member_that_was_ready_for_long_gets_its_whole_patience"),
        (PLAN, "cases[S4 ready until lately]"),
    ),
    "S5": shown(
        (LIFE, "a_bad_edit_of_a_bound_claim_is_told_and_leaves_it_ready"),
        (LIFE, "trouble_of_ours_shows_in_healthy_and_never_in_ready"),
        (LIFE, "pool_and_template_may_go_once_a_claim_is_bound"),
    ),
    "S6": shown((UPKEEP, "a_running_sandbox_does_not_follow_its_template")),
    "S7": shown((TRANSFER, "additional_metadata_is_added_to_what_the_member_was_made_with")),
    "S8": shown((END, "a_sandbox_that_no_status_names_goes_with_the_rest")),
    "S9": shown(("unit/controllers/claim/test_audit.py", "harm_is_found_put_right_and_counted")),
    "S10": shown(
        (FAULTS, "what_is_under_way_for_a_claim_is_not_given_to_another"),
        (ASSIGNER, "a_member_that_gets_its_node_late_counts_there"),
    ),
    "S11": shown((PLAN, "cases[S11 stale ones count until they are gone]")),
    "S12": shown((FAULTS, "a_cold_claim")),
    "S13": shown((LIFE, "what_can_never_be_done_is_told_once_and_not_tried_again")),
    "S14": shown((LIFE, "a_long_wait_is_told_and_ends_in_a_cold_start")),
    "S15": shown((ROLLOUTS, "a_rolling_update_keeps_enough_available_at_every_moment")),
    "S16": shown(
        (BUDGET, "metadata_of_the_pod_travels_with_the_transfer"),
        but="the sandbox has the metadata before the claim is ready; its pod follows a moment later, and nobody waits for that",
    ),
    "O1": shown(
        (POOL, "a_missing_template_is_told_and_waited_for"),
        (PATIENCE, "a_restart_tells_nothing_twice"),
        ("unit/controllers/pool/test_status.py", "what_is_wrong_with_a_member_is_quoted_before_it_is_given_up"),
        ("unit/controllers/template/test_plan.py", "a_foreign_policy_is_never_touched_and_told"),
        but="templates have no conditions in the contract: what stands in their way is in an Event and on their pools",
    ),
    "O2": shown((LIFE, "what_can_never_be_done_is_told_once_and_not_tried_again")),
    "O3": shown(
        (LEASE, "a_released_lease_is_taken_at_the_next_attempt"),
        (FAULTS, "a_new_leader_reads_claims_and_then_sandboxes_before_it_begins"),
        but="one leads; after a crash its lease is waited out, or two would lead at once",
    ),
    "O4": shown((PATIENCE, "refilling_can_wait_for_the_end_of_a_burst_but_not_for_ever")),
    "O5": shown((TIMES, "the_headline_is_not_empty_without_a_webhook")),
    "O6": shown(
        ("hygiene/test_conditions_reference.py", "the_page_has_every_reason"),
        but="what clients say of the reasons is theirs",
    ),
    "A1": NotHere("v1alpha1 is not served, so nothing is converted"),
    "A2": shown(
        (LIFE, "a_bad_edit_of_a_bound_claim_is_told_and_leaves_it_ready"),
        (UPKEEP, "what_comes_too_late_for_a_warm_one_is_told"),
        but="another warmPoolRef is not told: it counts when the claim needs its next sandbox",
    ),
    "A3": shown(
        (BINDING, "everything_in_one_write"),
        (WHOLE, "foreground_waits_for_a_pod_that_goes_slowly"),
        but="no Service is made unless asked for, as the contract has it; the addresses are in the claim's status",
    ),
}
