"""The contract's catalogue of edge cases: each has a test, or a reason why it is different here, or a place of its own.

Covered: environment (CE), volumes (CV), pod metadata (CD), legacy policies (CN), templates (T), the candidate queue (Q), and of
adoption (CA) and conflicts (CC) what the assigner and the patches decide.
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


@dataclass(frozen=True)
class Different:
    """Deliberately not as catalogued: why, and the test of what happens instead."""

    why: str
    file: str
    test: str


@dataclass(frozen=True)
class Elsewhere:
    """Decided by the claim controller itself."""

    what: str


Case = tuple[str, str] | Different | Elsewhere

FINAL = "retrying cannot help before the claim or the template changes, so it is final and says so"
NO_RESERVATION = "the owner is the durable truth: no reference is written to the claim before the transfer"

CASES: dict[str, Case] = {
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
    "CA-26": Elsewhere("a bound claim does not ask for another"),
    "CA-27": (ASSIGNER, "test_node_with_most_left_comes_first_and_order_stays"),
    "CA-28": (ASSIGNER, "test_never_offered"),
    "CA-29": Different(NO_RESERVATION, ASSIGNER, "test_namespaces_and_pools_do_not_meet"),
    "CA-30": Elsewhere("old labels on the claim"),
    "CA-31": (READ, "test_references_of_an_old_version_count"),
    "CA-32": (ASSIGNER, "test_two_members_three_claims"),
    "CC-01": Elsewhere("a transfer that is in the cache late"),
    "CC-02": Elsewhere("a transfer that is in the cache late"),
    "CC-03": Elsewhere("a bound claim after a restart"),
    "CC-04": Elsewhere("a bound claim seen late"),
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
    "CC-12": Elsewhere("how often the same transfer is tried"),
    "CC-13": Different(NO_RESERVATION, SETTLE, "test_transfer_looked_at"),
    "CC-14": Different(NO_RESERVATION, SETTLE, "test_what_is_open_is_looked_at"),
    "CC-15": Elsewhere("cancellation passes through: nothing here catches it"),
    "CC-16": Elsewhere("cancellation passes through: nothing here catches it"),
    "CC-17": Elsewhere("cancellation passes through: nothing here catches it"),
}

CATALOGUE = {"CE": 12, "CV": 9, "CD": 10, "CN": 2, "T": 8, "Q": 7, "CA": 32, "CC": 17}


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((HERE / file).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions)


def test_every_case_is_here() -> None:
    assert set(CASES) == {f"{part}-{number:02}" for part, most in CATALOGUE.items() for number in range(1, most + 1)}


@pytest.mark.parametrize("case", CASES)
def test_its_test_exists(case: str) -> None:
    match CASES[case]:
        case Elsewhere(what):
            assert what
        case Different(why, file, test):
            assert why
            assert test in names_in(file)
        case (file, test):
            assert test in names_in(file)
