"""The contract's catalogue of edge cases: each has a test, or a reason why it is different here, or a place of its own.

Covered: claims in general (CR), environment (CE), volumes (CV), pod metadata (CD), legacy policies (CN), adoption (CA), conflicts
(CC), the end (CL), metrics (CM), watches (CW), the candidate queue (Q), templates (T), and the end-to-end cases (E).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]

ASSIGNER, READ = "assigner/test_assigner.py", "assigner/test_read.py"
ENV, VOLUMES, METADATA = "claim/test_environment.py", "claim/test_volumes.py", "claim/test_pod_metadata.py"
COLD, TRANSFER, SETTLE, LEGACY = (
    "claim/test_blueprint.py",
    "claim/test_transfer.py",
    "claim/test_settle.py",
    "claim/test_legacy.py",
)
SERVER = "claim/test_on_a_server.py"
PLAN, POLICY = "template/test_plan.py", "template/test_policy.py"
STEPS, STATUS, UPKEEP = "claim/test_plan.py", "claim/test_status.py", "claim/test_upkeep.py"
NOTES, TRIGGERS, BINDING = "claim/test_annotations.py", "claim/test_triggers.py", "claim/test_binding.py"
LIFE, FAULTS, END, BUDGET = (
    f"../../integration/controllers/test_claim{part}.py" for part in ("", "_faults", "_end", "_budget")
)


@dataclass(frozen=True)
class Different:
    """Deliberately not as catalogued: why, and the test of what happens instead."""

    why: str
    file: str
    test: str


@dataclass(frozen=True)
class Elsewhere:
    """Decided by another part, which has its own tests."""

    what: str


Case = tuple[str, str] | Different | Elsewhere

FINAL = "retrying cannot help before the claim or the template changes, so it is final and says so"
MEASURES = "metrics follow the caches, not the claim controller: see the tests of the measures"
E2E = "needs pods that really run: see the end-to-end tests"
POOLS = "rollouts are the pool's: see the tests of the pool controller"
NO_RESERVATION = "the owner is the durable truth: no reference is written to the claim before the transfer"

CASES: dict[str, Case] = {
    "CR-01": (LIFE, "test_a_cold_start_from_empty_to_ready"),
    "CR-02": (COLD, "test_an_explicit_token_setting_is_kept"),
    "CR-03": Different(
        "looked at again when it appears, not on a timer", LIFE, "test_a_missing_template_and_its_appearance"
    ),
    "CR-04": (LIFE, "test_a_missing_pool_and_its_appearance"),
    "CR-05": Different(
        "a warm sandbox does not need the name, and is handed out; otherwise told, and looked at again when the name is free",
        LIFE,
        "test_a_foreign_sandbox_of_the_name_is_left_alone_and_its_end_wakes_the_claim",
    ),
    "CR-06": Different(
        "the label on the sandbox is enough: the one on its pod template is ignored by everybody",
        UPKEEP,
        "test_marks_are_added_and_never_overwritten",
    ),
    "CR-07": (LIFE, "test_pool_and_template_may_go_once_a_claim_is_bound"),
    "CR-08": (STATUS, "test_ready_is_forwarded_with_the_claims_generation"),
    "CR-09": (STATUS, "test_ready_is_forwarded_with_the_claims_generation"),
    "CR-10": (COLD, "test_the_whole_sandbox"),
    "CR-11": (COLD, "test_the_whole_sandbox"),
    "CR-12": (COLD, "test_dns_is_left_alone_unless_the_built_in_policy_blocks_it"),
    "CR-13": (COLD, "test_volumes_of_the_template_arrive"),
    "CR-14": (LIFE, "test_a_cold_start_from_empty_to_ready"),
    "CR-15": (LIFE, "test_a_missing_template_and_its_appearance"),
    "CR-16": (LIFE, "test_trouble_of_ours_shows_in_healthy_and_never_in_ready"),
    "CR-17": (LIFE, "test_a_status_ahead_of_the_sandbox_cache_gets_no_second_sandbox"),
    "CR-18": Different("settled at once by one read, without a delay", FAULTS, "test_a_cold_claim"),
    "CR-19": (UPKEEP, "test_marks_are_added_and_never_overwritten"),
    "CR-20": (LIFE, "test_marks_that_old_versions_did_not_write"),
    "CR-21": Elsewhere("spans: see the tests of the tracer"),
    "CL-01": (END, "test_retain_keeps_the_claim_and_deletes_the_sandbox"),
    "CL-02": (END, "test_a_foreign_sandbox_in_the_status_is_not_deleted"),
    "CL-03": (END, "test_delete_removes_the_claim_and_leaves_the_rest_to_the_collector"),
    "CL-04": (END, "test_delete_removes_the_claim_and_leaves_the_rest_to_the_collector"),
    "CL-05": (END, "test_time_to_live_after_the_work_is_done"),
    "CL-06": (END, "test_time_to_live_of_zero_is_told_before_it_is_done"),
    "CL-07": (END, "test_delete_removes_the_claim_and_leaves_the_rest_to_the_collector"),
    "CL-08": (END, "test_time_to_live_of_zero_is_told_before_it_is_done"),
    "CL-09": (END, "test_the_earlier_one_counts"),
    "CL-10": (END, "test_finished_without_a_time_to_live_changes_nothing"),
    "CM-01": Elsewhere(MEASURES),
    "CM-02": Elsewhere(MEASURES),
    "CM-03": (LIFE, "test_a_cold_start_from_empty_to_ready"),
    "CM-04": (LIFE, "test_a_claim_that_was_ready_before_anybody_noted_when"),
    "CM-05": Elsewhere(MEASURES),
    "CM-06": Elsewhere(MEASURES),
    "CM-07": (NOTES, "test_what_is_there_stays"),
    "CM-08": Different(
        "a moment that could not be written is remembered and written later; the claim does not fail for it",
        FAULTS,
        "test_a_failing_annotation_never_fails_the_claim",
    ),
    "CM-09": (NOTES, "test_a_moment_that_we_noted_ourselves_is_not_unknown"),
    "CM-10": Elsewhere(MEASURES),
    "CM-11": Elsewhere(MEASURES),
    "CM-12": Elsewhere(MEASURES),
    "CM-13": (TRIGGERS, "test_a_claim_that_is_gone_is_cleared_up_after"),
    "CM-14": (LIFE, "test_nothing_is_remembered_of_a_claim_that_is_gone"),
    "CM-15": (NOTES, "test_a_new_claim_gets_all_three"),
    "CM-16": (BUDGET, "test_the_annotations_can_be_switched_off"),
    "CM-17": Different(
        "switched off means none at all: the sandbox is in the status",
        BUDGET,
        "test_the_annotations_can_be_switched_off",
    ),
    "CM-18": (UPKEEP, "test_marks_travel_alone"),
    "CM-19": Elsewhere(MEASURES),
    "CW-01": (TRIGGERS, "test_a_pool_wakes_only_its_own_unbound_claims"),
    "CW-02": (TRIGGERS, "test_what_a_pool_says_of_itself_wakes_nobody"),
    "CW-03": Different(
        "a template means nothing to a claim that has its sandbox",
        TRIGGERS,
        "test_a_template_wakes_the_unbound_claims_of_all_its_pools_each_once",
    ),
    "CW-04": Different(
        "an edit can allow what was refused, so it wakes the claims that wait",
        TRIGGERS,
        "test_a_template_wakes_the_unbound_claims_of_all_its_pools_each_once",
    ),
    "CW-05": (TRIGGERS, "test_a_sandbox_wakes_its_claim_at_once_or_in_a_moment"),
    "CW-06": ("assigner/test_feed.py", "test_a_member_that_is_gone"),
    "E-01": Elsewhere(E2E),
    "E-02": Elsewhere(E2E),
    "E-03": Elsewhere(E2E),
    "E-04": (END, "test_the_earlier_one_counts"),
    "E-05": (END, "test_finished_without_a_time_to_live_changes_nothing"),
    "E-06": (END, "test_a_sandbox_that_is_held_stays_in_the_status_until_it_is_gone"),
    **{f"E-{number:02}": Elsewhere(POOLS) for number in range(7, 13)},
    "E-13": (LIFE, "test_what_the_sandbox_says_is_forwarded_at_once"),
    "E-14": (TRANSFER, "test_wrong_pod_name_is_corrected_and_foreign_annotations_are_kept"),
    "E-15": (BUDGET, "test_three_hundred_at_once"),
    "E-16": (LIFE, "test_two_members_three_claims"),
    "E-17": (BUDGET, "test_three_hundred_at_once"),
    "E-18": (BUDGET, "test_the_annotations_tell_the_truth"),
    "E-19": (VOLUMES, "test_overrides_replaces_in_place_and_appends"),
    "E-20": (BUDGET, "test_the_annotations_tell_the_truth"),
    "E-21": Elsewhere(E2E),
    "E-22": (LIFE, "test_a_cold_start_from_empty_to_ready"),
    "E-23": Elsewhere(E2E),
    "E-24": Elsewhere(E2E),
    "E-25": Elsewhere("admission: see the tests of the local cluster"),
    "E-26": Elsewhere("a benchmark"),
    "CE-01": (ENV, "test_new_variables_follow_the_templates_own"),
    "CE-02": (COLD, "test_what_no_warm_sandbox_can_satisfy"),
    "CE-03": Different(FINAL, ENV, "test_allowed_does_not_replace"),
    "CE-04": (ENV, "test_disallowed"),
    "CE-05": (ENV, "test_allowed_cannot_see_into_env_from"),
    "CE-06": (ENV, "test_allowed_cannot_see_into_env_from"),
    "CE-07": (ENV, "test_env_from_elsewhere_does_not_matter"),
    "CE-08": (ENV, "test_nothing_wanted_nothing_checked"),
    "CE-09": (ENV, "test_overrides_replaces_in_place_and_with_a_plain_value"),
    "CE-10": (ENV, "test_one_container_is_meant"),
    "CE-11": (ENV, "test_an_init_container_is_meant"),
    "CE-12": Different(FINAL, ENV, "test_unknown_container"),
    "CV-01": (VOLUMES, "test_overrides_replaces_in_place_and_appends"),
    "CV-02": (VOLUMES, "test_allowed_appends"),
    "CV-03": (VOLUMES, "test_nothing_wanted_the_policy_is_not_asked"),
    "CV-04": (VOLUMES, "test_disallowed"),
    "CV-05": (VOLUMES, "test_a_clash_names_the_volume"),
    "CV-06": (VOLUMES, "test_empty_name_has_its_index"),
    "CV-07": (VOLUMES, "test_duplicate_name_in_the_claim"),
    "CV-08": (VOLUMES, "test_the_templates_own_list_is_checked_even_alone"),
    "CV-09": (COLD, "test_what_no_warm_sandbox_can_satisfy"),
    "CD-01": (COLD, "test_env_and_volumes_and_metadata_arrive"),
    "CD-02": (METADATA, "test_label_without_a_domain"),
    "CD-03": (METADATA, "test_bad_label_value"),
    "CD-04": (METADATA, "test_bad_label_value"),
    "CD-05": (METADATA, "test_bad_label_key"),
    "CD-06": (METADATA, "test_label_domain_not_allowed"),
    "CD-07": (METADATA, "test_safe_to_evict_is_accepted"),
    "CD-08": (METADATA, "test_posing_as_the_router"),
    "CD-09": (METADATA, "test_configured_domain"),
    "CD-10": Different(
        "metadata is added to what the member was made with, so no template is needed, and a bound claim stays Ready",
        TRANSFER,
        "test_additional_metadata_is_added_to_what_the_member_was_made_with",
    ),
    "CN-01": (LEGACY, "test_the_claims_own_goes"),
    "CN-02": (LEGACY, "test_all_others_stay"),
    "T-01": (POLICY, "test_the_strict_policy"),
    "T-02": (POLICY, "test_own_rules_are_taken_as_they_are"),
    "T-03": (PLAN, "test_unmanaged"),
    "T-04": (PLAN, "test_unmanaged"),
    "T-05": (PLAN, "test_an_edit_reaches_the_policy"),
    "T-06": (PLAN, "test_unmanaged"),
    "T-07": Different(
        "told in an Event and looked at again when the policy changes, instead of failing for ever",
        PLAN,
        "test_a_foreign_policy_is_never_touched_and_told",
    ),
    "T-08": (PLAN, "test_the_label_of_the_template"),
    "Q-01": (ASSIGNER, "test_oldest_ready_member_first"),
    "Q-02": (ASSIGNER, "test_one_from_the_middle_goes"),
    "Q-03": (ASSIGNER, "test_told_three_times_it_is_there_once"),
    "Q-04": (ASSIGNER, "test_nothing_is_kept_of_a_pool_that_is_gone"),
    "Q-05": (ASSIGNER, "test_node_with_most_left_comes_first_and_order_stays"),
    "Q-06": (ASSIGNER, "test_namespaces_and_pools_do_not_meet"),
    "Q-07": (ASSIGNER, "test_a_member_that_gets_its_node_late_counts_there"),
    "CA-01": (ASSIGNER, "test_oldest_ready_member_first"),
    "CA-02": (ASSIGNER, "test_oldest_ready_member_first"),
    "CA-03": (READ, "test_perfect_labels_without_a_pool_that_controls_it_are_not_enough"),
    "CA-04": (ASSIGNER, "test_never_offered"),
    "CA-05": (ASSIGNER, "test_never_offered"),
    "CA-06": (ASSIGNER, "test_ready_before_older_unready"),
    "CA-07": Different(
        "a member that is not ready is waited for, not taken: it may never become ready",
        ASSIGNER,
        "test_waiters_are_served_in_order_and_woken_once",
    ),
    "CA-08": (ASSIGNER, "test_a_wait_ends_at_its_deadline"),
    "CA-09": Different("as CA-07: neither is taken before it is ready", ASSIGNER, "test_ready_before_older_unready"),
    "CA-10": (TRANSFER, "test_wrong_pod_name_is_corrected_and_foreign_annotations_are_kept"),
    "CA-11": (TRANSFER, "test_eviction"),
    "CA-12": (TRANSFER, "test_eviction"),
    "CA-13": Different(
        "a transfer leaves the spec alone unless the claim adds metadata; whether a pod may be evicted follows its owner",
        TRANSFER,
        "test_eviction",
    ),
    "CA-14": (READ, "test_perfect_labels_without_a_pool_that_controls_it_are_not_enough"),
    "CA-15": (TRANSFER, "test_creator_is_the_claims_or_nobody"),
    "CA-16": (ASSIGNER, "test_strategies"),
    "CA-17": (ASSIGNER, "test_strategies"),
    "CA-18": (READ, "test_stale"),
    "CA-19": (ASSIGNER, "test_strategies"),
    "CA-20": Different(NO_RESERVATION, SETTLE, "test_transfer_looked_at"),
    "CA-21": (ASSIGNER, "test_ready_before_older_unready"),
    "CA-22": (ASSIGNER, "test_waiters_are_served_in_order_and_woken_once"),
    "CA-23": (ASSIGNER, "test_oldest_ready_member_first"),
    "CA-24": (ASSIGNER, "test_waiters_are_served_in_order_and_woken_once"),
    "CA-25": (ASSIGNER, "test_strategies"),
    "CA-26": (STEPS, "test_next_step"),
    "CA-27": (ASSIGNER, "test_node_with_most_left_comes_first_and_order_stays"),
    "CA-28": (ASSIGNER, "test_never_offered"),
    "CA-29": Different(NO_RESERVATION, ASSIGNER, "test_namespaces_and_pools_do_not_meet"),
    "CA-30": (LIFE, "test_marks_that_old_versions_did_not_write"),
    "CA-31": (READ, "test_references_of_an_old_version_count"),
    "CA-32": (ASSIGNER, "test_two_members_three_claims"),
    "CC-01": (LIFE, "test_a_sandbox_that_is_the_claims_already_is_bound"),
    "CC-02": (FAULTS, "test_an_answer_lost_and_the_look_as_well"),
    "CC-03": (FAULTS, "test_a_crash_at_every_call"),
    "CC-04": (LIFE, "test_a_status_ahead_of_the_sandbox_cache_gets_no_second_sandbox"),
    "CC-05": (SETTLE, "test_transfer_looked_at"),
    "CC-06": Different(
        "the binding tests the claim's uid and that nothing is bound: an annotation that moves makes no conflict",
        SERVER,
        "test_a_second_binding_is_surplus",
    ),
    "CC-07": (SETTLE, "test_binding_looked_at"),
    "CC-08": Different(NO_RESERVATION, SETTLE, "test_transfer_looked_at"),
    "CC-09": (SETTLE, "test_transfer_looked_at"),
    "CC-10": (SETTLE, "test_transfer_looked_at"),
    "CC-11": (SETTLE, "test_transfer_looked_at"),
    "CC-12": (FAULTS, "test_a_transfer_that_never_lands"),
    "CC-13": Different(NO_RESERVATION, SETTLE, "test_transfer_looked_at"),
    "CC-14": Different(NO_RESERVATION, SETTLE, "test_what_is_open_is_looked_at"),
    "CC-15": (FAULTS, "test_a_crash_at_every_call"),
    "CC-16": (FAULTS, "test_a_crash_at_every_call"),
    "CC-17": (FAULTS, "test_a_crash_at_every_call"),
}

WEAKNESSES: dict[str, Case] = {
    "L1": (BUDGET, "test_two_round_trips_to_ready"),
    "L2": (LIFE, "test_a_generation_alone_is_no_news"),
    "L8": (ASSIGNER, "test_waiters_are_served_in_order_and_woken_once"),
    "L9": Different(
        "waits are woken, not polled; a cold start that has begun is not taken back, because two sandboxes would have to race",
        LIFE,
        "test_a_claim_waits_for_a_member_that_warms_and_is_woken_by_it",
    ),
    "L10": (BUDGET, "test_one_warm_claim_is_three_writes_and_one_reconcile"),
    "S3": (NOTES, "test_a_moment_that_we_noted_ourselves_is_not_unknown"),
    "S5": (LIFE, "test_a_bad_edit_of_a_bound_claim_is_told_and_leaves_it_ready"),
    "S6": (UPKEEP, "test_a_running_sandbox_does_not_follow_its_template"),
    "S7": (TRANSFER, "test_additional_metadata_is_added_to_what_the_member_was_made_with"),
    "S8": (END, "test_a_sandbox_that_no_status_names_goes_with_the_rest"),
    "S9": ("claim/test_audit.py", "test_harm_is_found_put_right_and_counted"),
    "S10": (ASSIGNER, "test_a_member_that_gets_its_node_late_counts_there"),
    "S12": (FAULTS, "test_a_cold_claim"),
    "S13": (LIFE, "test_what_can_never_be_done_is_told_once_and_not_tried_again"),
    "S14": (LIFE, "test_a_long_wait_is_told_and_ends_in_a_cold_start"),
    "S16": Different(
        "the sandbox has the metadata before the claim is ready; its pod follows a moment later, and nobody waits for that",
        BUDGET,
        "test_metadata_of_the_pod_travels_with_the_transfer",
    ),
    "O2": (LIFE, "test_what_can_never_be_done_is_told_once_and_not_tried_again"),
    "A2": (LIFE, "test_a_bad_edit_of_a_bound_claim_is_told_and_leaves_it_ready"),
}
"""What other implementations are known to do wrong with claims, and the test that shows that it does not happen here."""

CATALOGUE = {
    "CR": 21, "CE": 12, "CV": 9, "CD": 10, "CN": 2, "CA": 32, "CC": 17, "CL": 10, "CM": 19, "CW": 6, "Q": 7, "T": 8, "E": 26,
}  # fmt: skip


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((HERE / file).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions)


def test_every_case_is_here() -> None:
    assert set(CASES) == {f"{part}-{number:02}" for part, most in CATALOGUE.items() for number in range(1, most + 1)}


@pytest.mark.parametrize("case", [*CASES, *WEAKNESSES])
def test_its_test_exists(case: str) -> None:
    match (CASES | WEAKNESSES)[case]:
        case Elsewhere(what):
            assert what
        case Different(why, file, test):
            assert why
            assert test in names_in(file)
        case (file, test):
            assert test in names_in(file)
