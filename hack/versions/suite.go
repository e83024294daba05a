package main

// part is a part of eventd, with the tests that show that it works with a version of Kubernetes.
type part struct {
	name  string
	tests []tests
}

// tests are tests of a package. Each of them needs the control plane.
type tests struct{ folder, names string }

var suite = []part{
	{"intake", []tests{
		{"test/e2e", `TestUnmodifiedClassicRecorder TestUnmodifiedNewStyleRecorder TestTwoEventdsCountTheSameSeries
			TestSelfCountingClientContinuesAfterACrash TestIntakeRulesAreSwitchedWhileAClientCounts TestKubectlShowsTheseEventsLikeAnyOther`},
		{"pkg/intake", `TestInputsAreAnsweredAsByTheAPIServer TestCreateIsNotPatch TestKubectlSendsEvents TestCountAndTimeOfAStoredEventOnlyRise`},
		{"pkg/sink", `TestStoredEvent TestRefusalsSettleWithTheirReason TestAnnotationsAreNoDirectivesOfAPatch
			TestExpiredEventIsCreatedAgainWithWhatIsPending TestCountsAddUpThoughAnswersAreLost`},
		{"pkg/pipeline", `TestStoresWhatClientGoStores TestStoresWhatClientGosNewBroadcasterStores TestNewStyleRepairsSatisfyTheApiserver`},
	}},
	{"delivery", []tests{
		{"test/e2e", `TestMetricsCountWhatIsStored TestAThrottledRouteDeliversSummaries TestRedactedFieldsAreNotDelivered
			TestWrongFileLeavesEventdReadyAndDelivering`},
		{"pkg/delivery", `TestCursorsInAnAPIServer`},
	}},
	{"history", []tests{
		{"test/out", `TestAHistoryIsFilledByAWatch TestEveryVersionIsObservedInOrderAndInProtobuf TestWhatIsStoredIsListedPageByPage
			TestVersionsThatWereCompactedCollapse TestAKillOfTheApiserverLosesAndRepeatsNothing
			TestAfterARestoreOfEtcdEverythingStoredIsReturnedAgain TestLargeEventsAreListedInSmallerPages`},
		{"cmd/eventd/app", `TestQueriesShowWhatTheApiserverWouldShow TestAggregatedAPIIsDiscovered`},
	}},
	{"election", []tests{
		{"pkg/election", `TestReleaseHandsOverWithinAnInstant TestElectorWorksWithTheLockOfClientGo TestForeignMetadataOfTheLeaseIsKept
			TestLeaseIsCreatedOnlyIfThereIsNone TestOneLeaseByNameIsAllTheRightThatIsNeeded TestBecomingAndCeasingToBeTheLeaderAreEventsOfTheLease`},
		{"cmd/eventd/app", `TestOneOfThreeReplicasLeadsAndAllAreReady TestFormerLeaderForwardsRequestsAfterTheHandover
			TestStoppedProcessDoesNotLeadWhenItGoesOn TestReplicaThatIsCutOffLosesTheLeaseAndStandsByUntilItIsElectedAgain`},
	}},
	{"rights", []tests{
		{"test/deploy", `TestPageNamesTheKubernetesThatItIsTestedWith TestManifestsAreTakenByAnApiserverThatIsStrict
			TestPodIsAdmittedWhereRestrictedIsEnforced TestEventdUsesTheRightsThatItHas TestEveryRightIsNeeded TestEveryRightOfObserveIsNeeded
			TestLimitOfAUserDelaysEventsAndLosesNone TestEventsHaveAShareOfTheApiserverOfTheirOwn TestUninstallLeavesNothing`},
		{"cmd/eventd/app", `TestRolesAreTwoProcesses TestReplicasServeWithCertificatesOfTheirCA TestReplicaWithoutAGoodTokenIsNotElectedUntilItHasOne`},
		{"internal/relay", `TestWhoIsAcceptedAsAReplica`},
		{"pkg/sink", `TestRightsOfServiceAccounts TestEventsAreWrittenWithTheRightsThatThereAre`},
	}},
	{"plugin", []tests{
		{"cmd/kubectl-eventd/app", `TestTimelineFollowsOwnersWithTheRightsOfTheCaller TestAConnectionThatFailsSaysWhatToDo
			TestKubectlRunsAndCompletesThePlugin TestObjectsAreNamedAsForKubectl TestAnObjectThatIsNotThereIsToldFromOneWithoutEvents`},
		{"cmd/kubectl-eventd/client", `TestCallersUseTheCredentialsOfTheirKubeconfig TestForwardingThroughTheAPIServerToAPod`},
	}},
}
