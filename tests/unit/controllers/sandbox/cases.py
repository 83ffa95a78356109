"""Which test shows each behaviour that the contract pins, by its number there, or why it is deliberately different here.

"status.name" stands for test_status.py::test_name in this folder; "life" and "faults" are the two files about sandboxes in
tests/integration/controllers.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
INTEGRATION = HERE.parents[2] / "integration" / "controllers"
FILES = {
    **{name: HERE / f"test_{name}.py" for name in ("status", "pod", "service", "volumes", "end", "view", "weaknesses")},
    "triggers": HERE / "test_triggers.py",
    "life": INTEGRATION / "test_sandbox.py",
    "faults": INTEGRATION / "test_sandbox_faults.py",
}


class Differs(NamedTuple):
    """The case is answered differently, or not by this controller; `test` shows what happens instead, where something does."""

    reason: str
    test: str = ""


_WRITE_BEHIND = Differs(
    "the patch of the pod is not what costs: it is sent at once, and status differences wait for company instead",
    "life.a_transfer_to_a_claim_costs_one_patch_of_the_pod",
)
_TYPED = "caches hold typed slices of objects from the start, so there is nothing to transform"

CASES: dict[int, str | Differs] = {
    1: "status.without_pod_and_service_both_are_named",
    2: "status.a_service_alone_is_not_ready",
    3: "status.a_pending_pod_is_told_by_its_phase",
    4: "status.running_but_not_ready",
    5: "status.ready_without_address",
    6: "status.suspending_while_the_pod_goes",
    7: "status.suspension_blocked_by_a_foreign_pod",
    8: "status.a_delete_that_failed_is_still_terminating",
    9: "status.suspended",
    10: "status.suspended_and_the_pod_unknown",
    11: "status.running_and_the_pod_unknown",
    12: "status.resuming_without_a_pod_yet",
    13: "status.other_phases_are_not_ready",
    14: "status.a_finished_pod",
    15: "status.a_finished_pod",
    16: "status.a_foreign_pod_finishes_nothing",
    17: Differs(
        "an error is the reason of a Ready that is False anyway; it never makes Ready False",
        "weaknesses.w20_trouble_never_takes_ready_away",
    ),
    18: "status.the_scheduler_is_quoted",
    19: "status.the_scheduler_is_quoted",
    20: "status.a_scheduler_without_a_reason_gets_one",
    21: "status.several_pods_are_told_without_other_trouble",
    22: "status.the_name_of_the_pod",
    23: "status.the_name_of_the_pod",
    24: "status.the_name_of_the_pod",
    25: "status.the_name_of_the_pod",
    26: "pod.a_minimal_sandbox_gets_a_pod_and_nothing_else",
    27: "life.the_service_follows_its_switch",
    28: "pod.everything_at_once",
    29: "pod.an_adopted_pod_gives_its_addresses",
    30: "pod.the_tracking_label_alone_allows_it",
    31: "status.no_service_is_needed_unless_asked_for",
    32: Differs("the end is told, and everything torn down, in one pass", "life.expiry_is_on_time_and_by_policy"),
    33: "end.the_pod_is_found_by_owner_whatever_its_name",
    34: "life.expiry_is_on_time_and_by_policy",
    35: "end.others_survive",
    36: "end.others_survive",
    37: "end.nothing_to_delete_is_an_end_as_well",
    38: "life.suspend_and_resume",
    39: "status.suspended",
    40: "pod.an_adoptable_pod_is_taken_over",
    41: "pod.the_tracking_label_alone_allows_it",
    42: "pod.the_tracking_label_alone_allows_it",
    43: "pod.a_minimal_sandbox_gets_a_pod_and_nothing_else",
    44: "pod.keys_of_the_system_in_a_template_are_dropped",
    45: "pod.keys_of_the_system_that_were_copied_once_are_scrubbed",
    46: "pod.labels_of_a_sandbox_without_extension_owner_are_not_copied",
    47: "pod.keys_of_the_system_in_a_template_are_dropped",
    48: "pod.labels_of_a_sandbox_without_extension_owner_are_not_copied",
    49: "pod.a_pool_implies_its_labels",
    50: "pod.a_change_of_owner_reaches_a_running_pod",
    51: "pod.owner_labels_come_to_a_running_pod",
    52: "pod.a_pool_implies_its_labels",
    53: "pod.owner_labels_come_to_a_running_pod",
    54: "pod.a_pool_implies_its_labels",
    55: "pod.owner_labels_go_with_the_owner",
    56: "pod.a_template_label_goes_when_the_sandbox_lacks_it",
    57: "pod.suspension_deletes_the_pod_by_uid",
    58: "pod.suspension_without_a_pod_has_nothing_to_do",
    59: "pod.the_annotation_leads_to_an_adoptable_pod",
    60: "pod.a_pod_of_somebody_else_is_refused",
    61: "pod.suspension_spares_others_and_forgets_the_annotation",
    62: "pod.suspension_spares_others_and_forgets_the_annotation",
    63: "pod.suspension_keeps_the_annotation_while_the_pod_goes",
    64: Differs(
        "the annotation is dropped as there, but it is a stale pointer and no error: the sandbox gets its own pod at once",
        "pod.an_annotation_that_leads_to_somebody_else_is_dropped",
    ),
    65: "pod.what_left_the_template_leaves_the_pod",
    66: "pod.a_pod_of_nobody_is_refused_without_leave",
    67: "pod.the_creator_is_normalised",
    68: "pod.the_creator_is_normalised",
    69: "pod.the_creator_follows",
    70: "pod.the_creator_follows",
    71: "pod.an_owned_survivor_counts",
    72: "pod.an_owned_survivor_beats_an_adoptable_pod",
    73: "pod.two_pods_of_other_names_are_not_ours_to_choose_from",
    74: "weaknesses.w25_several_pods_are_one_warning",
    75: "pod.only_the_owner_uid_makes_a_pod_ours",
    76: "pod.a_departing_pod_is_waited_for",
    77: "service.no_ports_are_no_ports",
    78: "service.made_headless_with_the_tracking_selector",
    79: "service.made_with_the_ports_of_the_containers",
    80: "service.native_sidecars_count_and_init_containers_do_not",
    81: "service.sorted_once_each_zero_skipped_and_named_by_the_first_name",
    82: "service.of_two_ports_of_one_name_the_first_keeps_it",
    83: "service.a_made_up_name_gives_way",
    84: "service.ours_is_kept",
    85: "service.selector_and_label_are_repaired",
    86: "service.ports_are_repaired",
    87: "service.fields_of_a_port_that_are_not_ours_cause_no_write",
    88: "service.a_service_of_somebody_else_is_refused",
    89: "service.taken_over_with_leave",
    90: "service.taking_over_clears_ports_that_nobody_wants",
    91: "service.a_service_with_an_address_cannot_become_headless",
    92: "service.taken_over_with_leave",
    93: "service.taken_over_with_leave",
    94: "service.unset_makes_none",
    95: "service.unset_keeps_ours_and_leaves_its_ports",
    96: "service.unset_ignores_one_of_nobody",
    97: "service.false_removes_ours",
    98: "service.false_spares_others",
    99: "service.one_of_nobody_is_refused_without_leave",
    100: "volumes.made_before_the_pod",
    101: "volumes.ours_is_used",
    102: "volumes.one_of_somebody_else_is_refused",
    103: "volumes.taken_over_with_leave",
    104: "volumes.taken_over_with_leave",
    105: "volumes.one_of_nobody_is_refused_without_leave",
    106: "view.whose_an_object_is",
    107: Differs("the timer is exact: an end that is near is not rounded up to two seconds", "end.when_it_ends"),
    108: "status.suspension_blocked_by_a_foreign_pod",
    109: "status.pod_scheduled_goes_with_the_pod",
    110: "status.running_and_the_pod_unknown",
    111: "status.trouble_with_a_service_does_not_hide_that_the_pod_is_unknown",
    112: Differs(
        "one pass, told before the teardown; what is kept and dropped is the same", "status.the_end_keeps_how_it_ended"
    ),
    113: "status.a_custom_cluster_domain",
    114: "volumes.volumes_are_replaced_and_appended_in_order",
    115: "status.twenty_looks_leave_three_conditions",
    116: Differs("the loop opens one span for each reconcile; spans of single objects are not this controller's"),
    117: "status.the_hash_of_a_name",
    118: Differs(
        "all progress before Ready is told together after a moment, not the node's name alone",
        "status.what_is_told_at_once",
    ),
    119: Differs(_TYPED),
    120: Differs(_TYPED),
    121: _WRITE_BEHIND,
    122: Differs(
        "it is the status that waits a moment", "life.a_slow_start_is_three_reconciles_however_much_the_kubelet_says"
    ),
    123: Differs("what waits is computed anew from what is", "life.a_new_controller_finds_nothing_to_do"),
}
