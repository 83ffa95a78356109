"""Which test shows each behaviour of claims and templates that the contract pins, by its number there, or why it is different.

Claims in general (CR), environment (CE), volumes (CV), pod metadata (CD), legacy policies (CN), adoption (CA), conflicts (CC), the
end (CL), metrics (CM), watches (CW), the candidate queue (Q), templates (T), conversion (V), and end to end (E). A test is named by
its file under tests/ and its name without `test_`, with the id of its parameters where one of many is meant.
"""

from __future__ import annotations

from typing import NamedTuple

UNIT, CLAIM, WORLD = "unit/controllers", "unit/controllers/claim", "integration/controllers"
ASSIGNER, FACTS, FEED = (f"{UNIT}/assigner/test_{part}.py" for part in ("assigner", "facts", "feed"))
ENV, VOLUMES, METADATA = (f"{CLAIM}/test_{part}.py" for part in ("environment", "volumes", "pod_metadata"))
COLD, TRANSFER, SETTLE = (f"{CLAIM}/test_{part}.py" for part in ("blueprint", "transfer", "settle"))
LEGACY, SERVER, BINDING = (f"{CLAIM}/test_{part}.py" for part in ("legacy", "on_a_server", "binding"))
STEPS, STATUS, UPKEEP = (f"{CLAIM}/test_{part}.py" for part in ("plan", "status", "upkeep"))
NOTES, TRIGGERS = f"{CLAIM}/test_annotations.py", f"{CLAIM}/test_triggers.py"
PLAN, POLICY = f"{UNIT}/template/test_plan.py", f"{UNIT}/template/test_policy.py"
TIMES, COUNTS, TRACES = (f"{UNIT}/metrics/test_{part}.py" for part in ("claims", "pools_and_sandboxes", "traces"))
LIFE, FAULTS, END = (f"{WORLD}/test_claim{part}.py" for part in ("", "_faults", "_end"))
BUDGET, EDGES, WHOLE = f"{WORLD}/test_claim_budget.py", f"{WORLD}/test_claim_edges.py", f"{WORLD}/test_end_to_end.py"


class Case(NamedTuple):
    """Shown by these tests. `reason`: why it is deliberately not as catalogued; the tests then show what happens instead."""

    tests: tuple[tuple[str, str], ...]
    reason: str = ""


def shown(*tests: tuple[str, str]) -> Case:
    return Case(tests)


def differs(reason: str, *tests: tuple[str, str]) -> Case:
    return Case(tests, reason)


FINAL = "retrying cannot help before the claim or the template changes, so it is final and says so"
NO_RESERVATION = "the owner is the durable truth: no reference is written to the claim before the transfer"

CASES: dict[str, Case] = {
    "CR-01": shown((LIFE, "a_cold_start_from_empty_to_ready")),
    "CR-02": shown((COLD, "an_explicit_token_setting_is_kept")),
    "CR-03": differs(
        "looked at again when it appears, not on a timer", (LIFE, "a_missing_template_and_its_appearance")
    ),
    "CR-04": shown((LIFE, "a_missing_pool_and_its_appearance")),
    "CR-05": differs(
        "a warm sandbox does not need the name, and is handed out; otherwise told, and looked at again when the name is free",
        (LIFE, "a_foreign_sandbox_of_the_name_is_left_alone_and_its_end_wakes_the_claim"),
    ),
    "CR-06": differs(
        "the label on the sandbox is enough: the one on its pod template is ignored by everybody",
        (UPKEEP, "marks_are_added_and_never_overwritten"),
    ),
    "CR-07": shown((LIFE, "pool_and_template_may_go_once_a_claim_is_bound")),
    "CR-08": shown((STATUS, "ready_is_forwarded_with_the_claims_generation")),
    "CR-09": shown((STATUS, "ready_is_forwarded_with_the_claims_generation")),
    "CR-10": shown((COLD, "the_whole_sandbox")),
    "CR-11": shown((COLD, "the_whole_sandbox")),
    "CR-12": shown((COLD, "dns_is_left_alone_unless_the_built_in_policy_blocks_it")),
    "CR-13": shown((COLD, "volumes_of_the_template_arrive")),
    "CR-14": shown((LIFE, "a_cold_start_from_empty_to_ready")),
    "CR-15": shown((LIFE, "a_missing_template_and_its_appearance")),
    "CR-16": shown((LIFE, "trouble_of_ours_shows_in_healthy_and_never_in_ready")),
    "CR-17": shown((EDGES, "a_bound_sandbox_that_cannot_be_read_stays_the_claims")),
    "CR-18": differs("settled at once by one read, without a delay", (FAULTS, "a_cold_claim")),
    "CR-19": shown((UPKEEP, "marks_are_added_and_never_overwritten")),
    "CR-20": shown((LIFE, "marks_that_old_versions_did_not_write")),
    "CR-21": differs(
        "spans carry no word of a tenant: a controller and a key, nothing else",
        (TRACES, "a_claim_and_its_sandbox_share_a_trace"),
    ),
    "CL-01": shown((END, "retain_keeps_the_claim_and_deletes_the_sandbox")),
    "CL-02": shown((END, "a_foreign_sandbox_in_the_status_is_not_deleted")),
    "CL-03": shown((END, "delete_removes_the_claim_and_leaves_the_rest_to_the_collector")),
    "CL-04": shown((END, "delete_removes_the_claim_and_leaves_the_rest_to_the_collector")),
    "CL-05": shown((END, "time_to_live_after_the_work_is_done")),
    "CL-06": shown((END, "time_to_live_of_zero_is_told_before_it_is_done")),
    "CL-07": shown((END, "delete_removes_the_claim_and_leaves_the_rest_to_the_collector")),
    "CL-08": shown((END, "time_to_live_of_zero_is_told_before_it_is_done")),
    "CL-09": shown((END, "the_earlier_one_counts")),
    "CL-10": shown((END, "finished_without_a_time_to_live_changes_nothing")),
    "CM-01": shown((TIMES, "starts_that_others_wrote_down"), (BUDGET, "the_annotations_tell_the_truth")),
    "CM-02": differs(
        "without the annotation of a webhook it is timed from when it was seen: an empty headline helps nobody",
        (TIMES, "the_headline_is_not_empty_without_a_webhook"),
    ),
    "CM-03": shown((LIFE, "a_cold_start_from_empty_to_ready")),
    "CM-04": shown((LIFE, "a_claim_that_was_ready_before_anybody_noted_when")),
    "CM-05": shown((TIMES, "a_cold_claim_and_one_without_a_sandbox_are_told_apart")),
    "CM-06": shown((TIMES, "starts_that_others_wrote_down[2026-01-01T00:00:03Z-None]")),
    "CM-07": shown((NOTES, "what_is_there_stays"), (TIMES, "claims_from_before_are_not_timed")),
    "CM-08": differs(
        "a moment that could not be written is remembered and written later; the claim does not fail for it",
        (FAULTS, "when_it_was_first_ready_never_fails_the_claim"),
    ),
    "CM-09": shown((NOTES, "a_moment_that_we_noted_ourselves_is_not_unknown")),
    "CM-10": shown(
        (TIMES, "starts_that_others_wrote_down[yesterday-None]"), (TIMES, "starts_that_others_wrote_down[-None]")
    ),
    "CM-11": shown((COUNTS, "hits_misses_and_what_is_held")),
    "CM-12": shown((COUNTS, "annotations_of_tenants_never_become_labels")),
    "CM-13": shown(
        (TIMES, "a_claim_of_the_same_name_is_another_claim"), (TRIGGERS, "a_claim_that_is_gone_is_cleared_up_after")
    ),
    "CM-14": shown(
        (LIFE, "nothing_is_remembered_of_a_claim_that_is_gone"),
        (TIMES, "a_claim_that_ends_early_is_forgotten"),
        (TIMES, "a_warm_claim_is_timed_from_sight_to_ready"),
    ),
    "CM-15": shown((NOTES, "a_new_claim_gets_all_three")),
    "CM-16": shown((BUDGET, "the_annotations_can_be_switched_off")),
    "CM-17": differs(
        "switched off means none at all: the sandbox is in the status", (BUDGET, "the_annotations_can_be_switched_off")
    ),
    "CM-18": shown((UPKEEP, "marks_travel_alone")),
    "CM-19": shown(
        (COUNTS, "annotations_of_tenants_never_become_labels"),
        (COUNTS, "a_member_that_an_old_version_owns_is_its_pools"),
    ),
    "CW-01": shown((TRIGGERS, "a_pool_wakes_only_its_own_unbound_claims")),
    "CW-02": shown((TRIGGERS, "what_a_pool_says_of_itself_wakes_nobody")),
    "CW-03": differs(
        "a template means nothing to a claim that has its sandbox",
        (TRIGGERS, "a_template_wakes_the_unbound_claims_of_all_its_pools_each_once"),
    ),
    "CW-04": differs(
        "an edit can allow what was refused, so it wakes the claims that wait",
        (TRIGGERS, "a_template_wakes_the_unbound_claims_of_all_its_pools_each_once"),
    ),
    "CW-05": shown((TRIGGERS, "a_sandbox_wakes_its_claim_at_once_or_in_a_moment")),
    "CW-06": shown((FEED, "a_member_that_is_gone"), (ASSIGNER, "nothing_is_kept_of_a_pool_that_is_gone")),
    "E-01": shown((WHOLE, "foreground_waits_for_a_pod_that_goes_slowly")),
    "E-02": shown((WHOLE, "after_the_work_everything_goes[DeleteForeground]")),
    "E-03": shown((WHOLE, "after_the_work_everything_goes[Delete]")),
    "E-04": shown((END, "the_earlier_one_counts")),
    "E-05": shown((END, "finished_without_a_time_to_live_changes_nothing")),
    "E-06": shown((WHOLE, "a_retained_claim_tells_how_it_ended_while_its_sandbox_is_held")),
    "E-07": shown((WHOLE, "members_stay_until_they_are_replaced[unset]")),
    "E-08": shown((WHOLE, "members_stay_until_they_are_replaced[OnReplenish]")),
    "E-09": shown((WHOLE, "members_are_replaced_and_those_of_other_templates_are_not[Recreate]")),
    "E-10": shown((WHOLE, "members_are_replaced_and_those_of_other_templates_are_not[Recreate]")),
    "E-11": shown((WHOLE, "another_template_rolls_and_a_label_does_not")),
    "E-12": shown((WHOLE, "another_template_rolls_and_a_label_does_not")),
    "E-13": shown((LIFE, "what_the_sandbox_says_is_forwarded_at_once")),
    "E-14": shown((WHOLE, "twenty_claims_at_once[25]")),
    "E-15": shown((WHOLE, "twenty_claims_at_once[25]")),
    "E-16": shown((WHOLE, "twenty_claims_at_once[5]")),
    "E-17": shown((WHOLE, "twenty_claims_at_once[20]"), (BUDGET, "three_hundred_at_once")),
    "E-18": shown((BUDGET, "the_annotations_tell_the_truth")),
    "E-19": shown((WHOLE, "storage_by_policy")),
    "E-20": shown((BUDGET, "the_annotations_tell_the_truth")),
    "E-21": shown((WHOLE, "a_runtime_class_is_carried_to_the_pod")),
    "E-22": shown((WHOLE, "twenty_claims_at_once[0]")),
    "E-23": differs("needs a router and a daemon inside the sandbox, which do not exist yet"),
    "E-24": differs(
        "the client needs a router first; what it asks for is tested without it", (WHOLE, "storage_by_policy")
    ),
    "E-25": shown(("integration/kubectl/test_write.py", "claim_templates_are_immutable")),
    "E-26": differs(
        "rates are measured (make bench) and never asserted: what is promised are counts",
        (BUDGET, "three_hundred_at_once"),
    ),
    "CE-01": shown((ENV, "new_variables_follow_the_templates_own")),
    "CE-02": shown((LIFE, "what_a_warm_one_cannot_have_starts_cold_and_leaves_the_pool_alone[env]")),
    "CE-03": differs(FINAL, (ENV, "allowed_does_not_replace")),
    "CE-04": shown((ENV, "disallowed")),
    "CE-05": shown((ENV, "allowed_cannot_see_into_env_from")),
    "CE-06": shown((ENV, "allowed_cannot_see_into_env_from")),
    "CE-07": shown((ENV, "env_from_elsewhere_does_not_matter")),
    "CE-08": shown((ENV, "nothing_wanted_nothing_checked")),
    "CE-09": shown((ENV, "overrides_replaces_in_place_and_with_a_plain_value")),
    "CE-10": shown((ENV, "one_container_is_meant")),
    "CE-11": shown((ENV, "an_init_container_is_meant")),
    "CE-12": differs(FINAL, (ENV, "unknown_container")),
    "CV-01": shown((VOLUMES, "overrides_replaces_in_place_and_appends")),
    "CV-02": shown((VOLUMES, "allowed_appends")),
    "CV-03": shown((VOLUMES, "nothing_wanted_the_policy_is_not_asked"), (COLD, "what_no_warm_sandbox_can_satisfy")),
    "CV-04": shown((VOLUMES, "disallowed")),
    "CV-05": shown((VOLUMES, "a_clash_names_the_volume")),
    "CV-06": shown((VOLUMES, "empty_name_has_its_index")),
    "CV-07": shown((VOLUMES, "duplicate_name_in_the_claim")),
    "CV-08": shown((VOLUMES, "the_templates_own_list_is_checked_even_alone")),
    "CV-09": shown(
        (LIFE, "what_a_warm_one_cannot_have_starts_cold_and_leaves_the_pool_alone[volumes]"),
        (COLD, "env_and_volumes_and_metadata_arrive"),
    ),
    "CD-01": shown((COLD, "env_and_volumes_and_metadata_arrive")),
    "CD-02": shown((METADATA, "label_without_a_domain")),
    "CD-03": shown((METADATA, "bad_label_value")),
    "CD-04": shown((METADATA, "bad_label_value"), (STEPS, "next_step[bad metadata goes before a missing pool]")),
    "CD-05": shown((METADATA, "bad_label_key")),
    "CD-06": shown((METADATA, "label_domain_not_allowed")),
    "CD-07": shown((METADATA, "safe_to_evict_is_accepted")),
    "CD-08": shown((METADATA, "posing_as_the_router")),
    "CD-09": shown((METADATA, "configured_domain")),
    "CD-10": differs(
        "metadata is added to what the member was made with, so no template is needed, and a bound claim stays Ready",
        (TRANSFER, "additional_metadata_is_added_to_what_the_member_was_made_with"),
    ),
    "CN-01": shown((LEGACY, "the_claims_own_goes")),
    "CN-02": shown((LEGACY, "all_others_stay")),
    "T-01": shown((POLICY, "the_strict_policy")),
    "T-02": shown((POLICY, "own_rules_are_taken_as_they_are")),
    "T-03": shown((PLAN, "unmanaged")),
    "T-04": shown((PLAN, "unmanaged")),
    "T-05": shown((PLAN, "an_edit_reaches_the_policy")),
    "T-06": shown((PLAN, "unmanaged")),
    "T-07": differs(
        "told in an Event and looked at again when the policy changes, instead of failing for ever",
        (PLAN, "a_foreign_policy_is_never_touched_and_told"),
    ),
    "T-08": shown((PLAN, "the_label_of_the_template")),
    "Q-01": shown((ASSIGNER, "oldest_ready_member_first")),
    "Q-02": shown((ASSIGNER, "one_from_the_middle_goes")),
    "Q-03": shown((ASSIGNER, "told_three_times_it_is_there_once")),
    "Q-04": shown((ASSIGNER, "nothing_is_kept_of_a_pool_that_is_gone")),
    "Q-05": shown((ASSIGNER, "node_with_most_left_comes_first_and_order_stays")),
    "Q-06": shown((ASSIGNER, "namespaces_and_pools_do_not_meet")),
    "Q-07": shown((ASSIGNER, "a_member_that_gets_its_node_late_counts_there")),
    "CA-01": shown((ASSIGNER, "oldest_ready_member_first")),
    "CA-02": shown((ASSIGNER, "oldest_ready_member_first")),
    "CA-03": shown((FACTS, "perfect_labels_without_a_pool_that_controls_it_are_not_enough")),
    "CA-04": shown((ASSIGNER, "never_offered")),
    "CA-05": shown((ASSIGNER, "never_offered")),
    "CA-06": shown((ASSIGNER, "ready_before_older_unready")),
    "CA-07": differs(
        "a member that is not ready is waited for, not taken: it may never become ready",
        (ASSIGNER, "waiters_are_served_in_order_and_woken_once"),
    ),
    "CA-08": shown((ASSIGNER, "a_wait_ends_at_its_deadline")),
    "CA-09": differs("as CA-07: neither is taken before it is ready", (ASSIGNER, "ready_before_older_unready")),
    "CA-10": shown((TRANSFER, "wrong_pod_name_is_corrected_and_foreign_annotations_are_kept")),
    "CA-11": shown((TRANSFER, "eviction")),
    "CA-12": shown((TRANSFER, "eviction")),
    "CA-13": differs(
        "a transfer leaves the spec alone unless the claim adds metadata; whether a pod may be evicted follows its owner",
        (TRANSFER, "eviction"),
    ),
    "CA-14": shown((FACTS, "perfect_labels_without_a_pool_that_controls_it_are_not_enough")),
    "CA-15": shown((TRANSFER, "creator_is_the_claims_or_nobody")),
    "CA-16": shown((ASSIGNER, "strategies")),
    "CA-17": shown((ASSIGNER, "strategies")),
    "CA-18": shown((FACTS, "stale")),
    "CA-19": shown((ASSIGNER, "strategies")),
    "CA-20": differs(NO_RESERVATION, (SETTLE, "transfer_looked_at")),
    "CA-21": shown((ASSIGNER, "ready_before_older_unready")),
    "CA-22": shown((LIFE, "a_claim_waits_for_a_member_that_warms_and_is_woken_by_it")),
    "CA-23": shown((ASSIGNER, "oldest_ready_member_first")),
    "CA-24": shown((ASSIGNER, "waiters_are_served_in_order_and_woken_once")),
    "CA-25": shown((ASSIGNER, "strategies")),
    "CA-26": shown((STEPS, "next_step[bound to what it owns]")),
    "CA-27": shown((ASSIGNER, "node_with_most_left_comes_first_and_order_stays")),
    "CA-28": shown((ASSIGNER, "never_offered")),
    "CA-29": differs(NO_RESERVATION, (ASSIGNER, "namespaces_and_pools_do_not_meet")),
    "CA-30": shown((LIFE, "marks_that_old_versions_did_not_write")),
    "CA-31": shown((FACTS, "references_of_an_old_version_count")),
    "CA-32": shown((LIFE, "two_members_three_claims"), (ASSIGNER, "two_members_three_claims")),
    "CC-01": shown((LIFE, "a_sandbox_that_is_the_claims_already_is_bound")),
    "CC-02": shown((FAULTS, "an_answer_lost_and_the_look_as_well")),
    "CC-03": shown((FAULTS, "a_crash_at_every_call")),
    "CC-04": shown((LIFE, "a_status_ahead_of_the_sandbox_cache_gets_no_second_sandbox")),
    "CC-05": shown((SETTLE, "transfer_looked_at")),
    "CC-06": differs(
        "the binding tests the claim's uid and that nothing is bound: an annotation that moves makes no conflict",
        (SERVER, "a_second_binding_is_surplus"),
    ),
    "CC-07": shown((FAULTS, "whoever_is_behind_does_not_take_ready_away"), (SETTLE, "binding_looked_at")),
    "CC-08": differs(NO_RESERVATION, (SETTLE, "transfer_looked_at")),
    "CC-09": shown((SETTLE, "transfer_looked_at")),
    "CC-10": shown((SETTLE, "transfer_looked_at")),
    "CC-11": shown((SETTLE, "transfer_looked_at")),
    "CC-12": shown((FAULTS, "a_transfer_that_never_lands")),
    "CC-13": differs(NO_RESERVATION, (SETTLE, "transfer_looked_at")),
    "CC-14": differs(NO_RESERVATION, (SETTLE, "what_is_open_is_looked_at")),
    "CC-15": shown((FAULTS, "a_crash_at_every_call")),
    "CC-16": shown((FAULTS, "a_crash_at_every_call")),
    "CC-17": shown((FAULTS, "a_crash_at_every_call")),
    **{
        f"V-{number:02}": differs("one version, v1beta1, is served: there is nothing to convert")
        for number in range(1, 9)
    },
}
